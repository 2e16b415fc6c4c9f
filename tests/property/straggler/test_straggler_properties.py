"""What holds whatever the replicas do: a decision alike everywhere, no one slower than T', no spiral.

Nobody is paced beyond the longest.
"""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from stragglers import index

from perseus_ds.straggler.controller import LEAST_SLACK, ReplicaStatus, StragglerController, StragglerDecision
from perseus_ds.straggler.replica_plans import ReplicaPlans

Numbers = NDArray[np.float64]
Round = tuple[ReplicaStatus, Numbers]
"""What is known of an iteration, and what the plans that ran predict."""

slowdowns = st.floats(1.0, 3.0)
weird = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -1.0])
LAG = 2


@st.composite
def rounds(draw: st.DrawFn, *, hostile: bool = True) -> list[Round]:
    """Some iterations of 2 to 6 replicas; hostile ones contain what no clock can show."""
    replicas = draw(st.integers(2, 6))
    seconds = st.floats(0.5, 5.0) | weird if hostile else st.floats(0.5, 5.0)

    def vector(elements: st.SearchStrategy[float]) -> Numbers:
        return np.array(draw(st.lists(elements, min_size=replicas, max_size=replicas)))

    return [
        (
            ReplicaStatus(
                own_s=vector(seconds),
                announced=vector(st.sampled_from([1.0, 1.0, 1.2]) | weird if hostile else st.just(1.0)),
                capped=vector(st.booleans()),
            ),
            vector(seconds),
        )
        for _ in range(draw(st.integers(1, 40)))
    ]


@settings(max_examples=40)
@given(rounds())
def test_whatever_is_heard_the_verdict_is_sound(observed: list[Round]) -> None:
    replicas = len(observed[0][0].own_s)
    controller = StragglerController(np.linspace(1.0, 1.1, replicas), np.linspace(0.95, 1.1, replicas))
    before = None
    for each in observed:
        decision = controller.observe(*each)
        limits = decision.limit_s[~np.isnan(decision.limit_s)]
        assert (limits > 0.0).all()
        assert np.isfinite(limits).all()
        assert (decision.sync_time_s is None) == (not decision.waiting)
        assert len(decision.waiting) < len(decision.limit_s), "somebody sets the pace"
        assert all(one.slowdown >= 1.0 for one in decision.stragglers)
        if before is not None:
            same = np.array_equal(before.limit_s, decision.limit_s, equal_nan=True)
            assert decision.changed == (not same)
        before = decision


@settings(max_examples=40)
@given(rounds(hostile=False), st.randoms(use_true_random=False))
def test_replicas_are_judged_by_what_they_do_alone(observed: list[Round], random: Random) -> None:
    replicas = len(observed[0][0].own_s)
    order = list(range(replicas))
    random.shuffle(order)
    objective_s, fastest_s = np.linspace(1.0, 1.1, replicas), np.linspace(0.95, 1.1, replicas)
    one, other = (
        StragglerController(objective_s, fastest_s),
        StragglerController(objective_s[order], fastest_s[order]),
    )
    for each, planned_s in observed:
        first = one.observe(each, planned_s)
        second = other.observe(
            ReplicaStatus(each.own_s[order], each.capped[order], each.announced[order]), planned_s[order]
        )
        assert first.sync_time_s == second.sync_time_s
        assert np.array_equal(first.limit_s[order], second.limit_s, equal_nan=True)


def settle(
    controller: StragglerController, slowness: Numbers, objective_s: Numbers, iterations: int
) -> list[StragglerDecision]:
    """Play without noise; every replica's plan takes exactly what it may, the decision comes LAG later."""
    coming = [objective_s] * LAG
    decisions = []
    nobody = np.zeros(len(slowness), dtype=np.bool_)
    for _ in range(iterations):
        planned_s = coming.pop(0)
        decision = controller.observe(
            ReplicaStatus(slowness * planned_s, nobody, np.ones(len(slowness))), planned_s
        )
        coming.append(np.where(np.isnan(decision.limit_s), objective_s, decision.limit_s))
        decisions.append(decision)
    return decisions


@settings(max_examples=40)
@given(st.lists(slowdowns, min_size=2, max_size=8), st.floats(1.0, 1.2))
def test_no_one_is_slower_than_the_meeting_and_nothing_spirals(slowness: list[float], longer: float) -> None:
    """Slowed replicas keep their promise: T' stays what the slowest needs, at whatever the others play."""
    slow = np.array(slowness)
    objective_s = np.ones(len(slow))
    objective_s[0] = longer
    need_s = float((slow * objective_s).max())
    controller = StragglerController(objective_s, objective_s, max_cost_pct=100.0)  # the bound apart
    decisions = settle(controller, slow, objective_s, 200)
    for decision in decisions:
        if decision.sync_time_s is not None:
            assert abs(decision.sync_time_s / need_s - 1.0) < 1e-9
        planned_s = np.where(np.isnan(decision.limit_s), objective_s, decision.limit_s)
        assert (slow * planned_s).max() <= need_s * (1.0 + 1e-9)
    last = decisions[-1]
    assert not any(decision.changed for decision in decisions[100:]), "a fixed point"
    has_slack = slow * objective_s < need_s / (1.0 + 2.0 * LEAST_SLACK)
    assert set(np.flatnonzero(has_slack)) <= set(last.waiting)


REPLICAS = 5
reports = st.lists(st.floats(0.1, 5.0) | weird, min_size=REPLICAS, max_size=REPLICAS).map(np.array)
errors = st.floats(0.001, 0.3) | weird


@settings(max_examples=60)
@given(reports, errors)
def test_nobody_is_paced_beyond_the_longest(reported: np.ndarray, error: float) -> None:
    """What is run at the chosen plan ends no later than the longest does at full speed."""
    plans = ReplicaPlans(index(), REPLICAS, forecast_error=error)
    plans.will_run(0)
    plans.pace(0, reported)
    stretch = index().predicted_s(np.array(plans.plans)) / index().objective_s
    known = np.isfinite(reported) & (reported > 0.0)
    assert (stretch[~known] == 1.0).all()
    if known.any():
        assert (reported[known] * stretch[known]).max() <= reported[known].max() * (1.0 + 1e-9)
