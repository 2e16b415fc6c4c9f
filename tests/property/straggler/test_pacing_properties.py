"""What holds whatever replicas tell: nobody is paced beyond the longest, and all ranks answer alike."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from straggler_cluster import index

from perseus_ds.straggler import Outlook, ProgressMarks, ReplicaPlans, ReplicaStatus

MARKS = ProgressMarks((-1, 3, 7), (0.0, 0.25, 0.5), (0.1, 0.35, 0.6))
weird = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0])


@st.composite
def told(draw: st.DrawFn, *, replicas: int = 5) -> list[list[Outlook]]:
    """Marks of some iterations."""

    def vector(elements: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(elements, min_size=replicas, max_size=replicas))

    return [
        [
            Outlook(
                np.array(vector(st.floats(0.0, 5.0) | weird)) if mark else np.zeros(replicas),
                np.array(vector(st.floats(0.1, 5.0) | weird)),
                np.array(vector(st.floats(0.001, 0.3) | weird)),
                np.array(vector(st.booleans())),
            )
            for mark in range(len(MARKS.share))
        ]
        for _ in range(draw(st.integers(1, 4)))
    ]


def fresh() -> ReplicaPlans:
    return ReplicaPlans([index()] * 5, marks=MARKS)


@settings(max_examples=60)
@given(told())
def test_nobody_is_paced_beyond_the_longest(iterations: list[list[Outlook]]) -> None:
    """What is left at the chosen plan ends no later than the longest does at full speed."""
    for one in iterations:
        plans = fresh()
        plans.will_run(0)
        for outlook in one:
            plans.told(0, outlook)
            stretch = index().expected_s[list(plans.plans)] / index().objective_s
            known, slowed = outlook.known, stretch > 1.0
            if not outlook.by_load.any() or not known.any():  # those go on as they were
                continue
            assert not (slowed & ~known).any()
            if slowed.any():
                elapsed_s, left_s = outlook.elapsed_s[known], outlook.left_s[known]
                end_s = (elapsed_s + left_s * stretch[known])[slowed[known]]
                assert (end_s <= (elapsed_s + left_s).max() * (1.0 + 1e-9)).all()


@settings(max_examples=30)
@given(told(), st.lists(st.floats(0.5, 5.0) | weird, min_size=5, max_size=5))
def test_the_same_is_answered_alike_and_nothing_is_ever_undefined(
    iterations: list[list[Outlook]], own: list[float]
) -> None:
    one, other = fresh(), fresh()
    status = ReplicaStatus(np.array(own), np.zeros(5, np.bool_), np.ones(5))
    for n, marks in enumerate(iterations):
        for plans in (one, other):
            plans.will_run(n)
            for outlook in marks:
                plans.told(n, outlook)
        assert one.plans == other.plans
        for plans in (one, other):
            plans.observe(n, status)
        assert one.plans == other.plans
        assert math.isfinite(one.cost_pct)
