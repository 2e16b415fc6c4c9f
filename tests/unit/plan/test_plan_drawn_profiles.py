"""Profiles of few executions: a plan made from one really lasts as long as it is expected to, on average."""

from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.plan import FrequencyPlan, Switching, build, expected
from perseus_ds.profile import Interval, Profile, Window, smoothed
from perseus_ds.profile.estimate import estimate
from perseus_ds.profile.records import CounterTrace
from perseus_ds.schedule import Instruction, Kind, dag_of, textbook

SCHEDULE = textbook("1f1b", stages=4, microbatches=4)
CLOCKS_MHZ = tuple(range(1410, 690, -45))
EXECUTIONS, NOISE = 12, 0.02
WAITING_W = 83.0


def true_s(stage: int, kind: Kind, clock_mhz: int) -> float:
    """The last stage is a little larger; a twentieth does not follow the clock."""
    work_s = (0.43 if stage == 3 else 0.4) * (1.0 if kind is Kind.FORWARD else 2.0)
    return work_s * (0.05 + 0.95 * 1410 / clock_mhz)


def drawn(seed: int) -> Profile:
    """What a job measures of a few executions at each clock, as its own profiling estimates it."""
    draw, points = np.random.default_rng(seed), {}
    for stage in range(4):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            points[stage, kind] = tuple(
                estimate(window(draw, stage, kind, clock_mhz)).points[stage, kind] for clock_mhz in CLOCKS_MHZ
            )
    return Profile(points, blocking_power_w=WAITING_W, blocking_w=dict.fromkeys(CLOCKS_MHZ, WAITING_W))


def window(draw: np.random.Generator, stage: int, kind: Kind, clock_mhz: int) -> Window:
    """Executions one after the other, and a counter that is read at the ends of all of them and of waits."""
    lasts_s = true_s(stage, kind, clock_mhz) * (1.0 + NOISE * draw.standard_normal(EXECUTIONS))
    power_w = WAITING_W + 300.0 * (clock_mhz / 1410) ** 2.4
    ends_s = np.cumsum(np.column_stack([lasts_s, np.full(EXECUTIONS, 0.1)]).ravel())
    spent_j = np.column_stack([power_w * lasts_s, np.full(EXECUTIONS, 0.1 * WAITING_W)]).ravel()
    ticks_s = np.concatenate([[0.0], ends_s])
    intervals = tuple(
        Interval(Instruction(stage, kind, number), float(end_s - own_s), float(end_s))
        for number, (own_s, end_s) in enumerate(zip(lasts_s, ends_s[::2], strict=True))
    )
    counter = CounterTrace(ticks_s, np.concatenate([[0.0], np.cumsum(spent_j)]))
    return Window(clock_mhz, 0.0, float(ends_s[-1]), intervals, counter)


def really_pct(plan: FrequencyPlan, factor: np.ndarray) -> float:
    """By how much longer iterations last than at the highest clocks, as durations really are and vary."""
    dag, portions = dag_of(SCHEDULE), plan.portions()

    def mean_s(highest: bool) -> float:  # noqa: FBT001
        lasts_s = factor.copy()
        for row, node in enumerate(dag.nodes):
            if not node.kind.is_computation:
                lasts_s[row] = 0.0
                continue
            own = plan.of.options[node.stage, node.kind].clock_mhz.tolist()
            shares = [(0, 1.0)] if highest else portions[node]
            lasts_s[row] *= sum(share * true_s(node.stage, node.kind, own[at]) for at, share in shares)
        return float((dag.starts_of_many(lasts_s, plan.of.fixed_s) + lasts_s).max(axis=0).mean())

    return 100.0 * (mean_s(highest=False) / mean_s(highest=True) - 1.0)


@pytest.mark.thorough
def test_a_plan_of_a_profile_of_few_executions_lasts_as_expected() -> None:
    """A plan that believed every point prefers those that are too fast by chance, and keeps too little."""
    factor = 1.0 + NOISE * np.random.default_rng(99).standard_normal((len(dag_of(SCHEDULE).nodes), 2000))
    promised, came = [], []
    for seed in range(8):
        profile = smoothed(drawn(seed))
        plans = build(
            profile, SCHEDULE, blocking_power_w=WAITING_W, reserve_pct="automatic", switching=Switching()
        )
        found = expected(plans.plan(0), profile, plans.change, variation=profile.variation())
        promised.append(found.slowdown_pct)
        came.append(really_pct(plans.plan(0), factor))
        assert abs(came[-1] - promised[-1]) < found.slowdown_within_pct
    assert abs(np.mean(came) - np.mean(promised)) < 0.04
    assert np.mean(came) < 0.14
