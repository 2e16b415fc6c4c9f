"""Where an emulated job loses time to imbalance, by cause: what if one of them were not there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.profile import Profile
from perseus_ds.schedule import dag_of
from perseus_ds.simulation.emulator import Disturbance, EmulatedLoads, Trouble
from perseus_ds.straggler.lost_time import top_s

_Floats = NDArray[np.float64]
_MOST_NODES = 2_000_000  # times sets of durations: 16 MB in each array


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Percent of the job's time at default clocks that goes when one cause goes, and when all do.

    ``worker``: no GPU is slower than the others; ``stage``: all stages take what they take on average;
    ``data``: every microbatch has the mean load. Causes overlap: their sum is not ``all_pct``.

    Source: the what-if analysis of stragglers, OSDI'25 (github.com/ByteDance-Seed/StragglerAnalysis).
    """

    worker_pct: float
    stage_pct: float
    data_pct: float
    all_pct: float


def imbalance(
    plans: PlanSet,
    profile: Profile,
    loads: EmulatedLoads | None,
    troubles: Sequence[Disturbance],
    *,
    iterations: int,
    pipelines: int,
) -> Imbalance:
    """Run iterations on paper, with every cause and without each.

    An iteration lasts as long as its slowest pipeline; slow GPUs are those of `Trouble.SLOW`.

    Cost: five passes over the schedule's graph for every iteration and pipeline, as vectors.
    """
    dag = dag_of(plans.schedule)
    most = max(1, _MOST_NODES // max(1, len(dag.nodes) * pipelines))
    played = min(iterations, most)
    by_load, by_worker = _factors(plans, profile, loads, troubles, (played, pipelines))
    computed = [node.kind.is_computation for node in dag.nodes]
    even = np.ones(by_load.shape)
    even[..., computed] = by_load[..., computed].mean()
    own_s, mean_s = (top_s(plans, dag, even=even) for even in (False, True))

    def job_s(lasts_s: _Floats, factor: _Floats) -> float:
        flat = np.ascontiguousarray((lasts_s * factor).reshape(-1, len(lasts_s)).T)
        end_s = (dag.starts_of_many(flat, plans.fixed_s) + flat).max(axis=0)
        return float(end_s.reshape(played, pipelines).max(axis=1).mean())

    whole_s = job_s(own_s, by_load * by_worker)

    def without_pct(lasts_s: _Floats, factor: _Floats) -> float:
        return max(0.0, 100.0 * (1.0 - job_s(lasts_s, factor) / whole_s))

    return Imbalance(
        worker_pct=without_pct(own_s, by_load),
        stage_pct=without_pct(mean_s, by_load * by_worker),
        data_pct=without_pct(own_s, even * by_worker),
        all_pct=without_pct(mean_s, even),
    )


def _factors(
    plans: PlanSet,
    profile: Profile,
    loads: EmulatedLoads | None,
    troubles: Sequence[Disturbance],
    shape: tuple[int, int],
) -> tuple[_Floats, _Floats]:
    """Return how many times as long everything takes for its load, and for a slow GPU.

    Shape: ``shape`` is (iterations, pipelines); both [iterations, pipelines, nodes].
    """
    nodes, rank_of = dag_of(plans.schedule).nodes, plans.schedule.rank_of_stages()
    by_load, by_worker = np.ones((*shape, len(nodes))), np.ones((*shape, len(nodes)))
    for n in range(shape[0]):
        if loads is not None:
            by_load[n] = loads.factors(profile, nodes, n, pipelines=shape[1])
        for one in troubles:
            if one.trouble is Trouble.SLOW and one.at(n):
                ranks = set(rank_of.values()) if one.rank is None else {one.rank}
                there = [node.kind.is_computation and rank_of[node.stage] in ranks for node in nodes]
                by_worker[n, one.pipeline, there] *= one.amount
    return by_load, by_worker
