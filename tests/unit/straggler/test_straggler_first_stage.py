"""Why the first stage alone tells how long its replica took: one reduction per stage, event by event."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from stragglers import Pipeline, planned

from perseus_ds.schedule import dag_of

Stages = NDArray[np.float64]
PATTERNS = [(1.2,) * 4, (1.3, 1, 1, 1), (1, 1.3, 1, 1), (1, 1, 1.3, 1), (1, 1, 1, 1.3), (1.0,) * 4]


def arrivals_s(plan: int, released_s: Stages, slow_stages: Sequence[float]) -> Stages:
    """When every stage of one replica reaches its reduction, if it starts no sooner than it was released."""
    plans = planned()
    dag, portions = dag_of(plans.schedule), plans.plan(plan).portions()
    starts_s = [0.0] * len(dag.nodes)
    for stage, order in enumerate(plans.schedule.orders):
        starts_s[dag.nodes.index(order[0])] = float(released_s[stage])
    arrived_s = np.zeros(len(released_s))
    for node in dag.topological():
        instruction = dag.nodes[node]
        time_s = plans.options[instruction.stage, instruction.kind].time_s
        duration_s = sum(share * float(time_s[option]) for option, share in portions[instruction])
        end_s = starts_s[node] + duration_s * slow_stages[instruction.stage]
        for follower in (then for first, then in dag.edges if first == node):
            starts_s[follower] = max(starts_s[follower], end_s)
        arrived_s[instruction.stage] = max(arrived_s[instruction.stage], end_s)
    return arrived_s


def own_times_s(
    plans: Sequence[int], slow: Sequence[Sequence[float]], *, one_step: bool
) -> tuple[float, NDArray[np.float64]]:
    """The job's iteration time, and [replicas, stages] what each stage calls its own, once settled.

    ``one_step``: the optimizer step waits for the gradients' norm over the pipeline, as with clipping.
    """
    released_s = np.zeros(4)
    for _ in range(8):
        arrived_s = np.array([arrivals_s(p, released_s, s) for p, s in zip(plans, slow, strict=True)])
        reduced_s = arrived_s.max(axis=0)
        following_s = np.full(4, reduced_s.max()) if one_step else reduced_s
        duration_s = following_s - released_s
        own_s = duration_s - (reduced_s - arrived_s)
        released_s = following_s
    return float(duration_s[0]), own_s


@pytest.mark.parametrize("one_step", [False, True])
@pytest.mark.parametrize("waiting_plan", [0, 100, 180])
@pytest.mark.parametrize("slow_stages", PATTERNS)
def test_the_first_stage_tells_what_its_replica_needs(
    slow_stages: tuple[float, ...], waiting_plan: int, *, one_step: bool
) -> None:
    pipeline = Pipeline(planned())
    straggler_s = pipeline.own_s(0, 0, slow_stages=slow_stages)
    waiting_s = float(pipeline.frontier_index.expected_s[waiting_plan])
    job_s, own_s = own_times_s([waiting_plan, 0], [(1.0,) * 4, slow_stages], one_step=one_step)
    assert own_s[:, 0] == pytest.approx([waiting_s, straggler_s], rel=1e-9)
    assert job_s == pytest.approx(max(waiting_s, straggler_s), rel=1e-9), "all meet at the slower one"


def test_later_stages_wait_for_their_first_activation_and_call_it_their_own() -> None:
    _, own_s = own_times_s([0, 0], [(1.0,) * 4, (1.2,) * 4], one_step=False)
    assert own_s[0].max() > 1.03 * own_s[0, 0]
