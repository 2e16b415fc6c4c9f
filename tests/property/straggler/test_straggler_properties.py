"""What holds whatever the replicas do: a verdict alike everywhere, no one slower than T', no spiral."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perseus_ds.straggler import Cause, Round, Verdict, Vigil
from perseus_ds.straggler.tuning import LEAST_SLACK, SHORT_SPELL

Numbers = NDArray[np.float64]

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
        Round(
            own_s=vector(seconds),
            planned_s=vector(seconds),
            told=vector(st.sampled_from([1.0, 1.0, 1.2]) | weird if hostile else st.just(1.0)),
            capped=vector(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 40)))
    ]


def vigil_for(heard: list[Round]) -> Vigil:
    replicas = len(heard[0].own_s)
    return Vigil(np.linspace(1.0, 1.1, replicas), np.linspace(0.95, 1.1, replicas))


def as_values(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.meeting_s,
        verdict.stragglers,
        verdict.limit_s.tobytes(),
        verdict.waiting,
        verdict.unfounded,
        verdict.changed,
    )


@settings(max_examples=40)
@given(rounds())
def test_the_same_rounds_give_the_same_verdicts(heard: list[Round]) -> None:
    one, other = vigil_for(heard), vigil_for(heard)
    for each in heard:
        assert as_values(one.hear(each)) == as_values(other.hear(each))


@settings(max_examples=40)
@given(rounds())
def test_whatever_is_heard_the_verdict_is_sound(heard: list[Round]) -> None:
    vigil = vigil_for(heard)
    before = None
    for each in heard:
        verdict = vigil.hear(each)
        limits = verdict.limit_s[~np.isnan(verdict.limit_s)]
        assert (limits > 0.0).all()
        assert np.isfinite(limits).all()
        assert (verdict.meeting_s is None) == (not verdict.waiting)
        assert len(verdict.waiting) < len(verdict.limit_s), "somebody sets the pace"
        assert all(one.slowdown >= 1.0 for one in verdict.stragglers)
        if before is not None:
            same = np.array_equal(before.limit_s, verdict.limit_s, equal_nan=True)
            assert verdict.changed == (not same)
        before = verdict


@settings(max_examples=40)
@given(rounds(hostile=False), st.randoms(use_true_random=False))
def test_replicas_are_judged_by_what_they_do_and_not_by_their_number(
    heard: list[Round], random: Random
) -> None:
    replicas = len(heard[0].own_s)
    order = list(range(replicas))
    random.shuffle(order)
    objective_s, fastest_s = np.linspace(1.0, 1.1, replicas), np.linspace(0.95, 1.1, replicas)
    one, other = Vigil(objective_s, fastest_s), Vigil(objective_s[order], fastest_s[order])
    for each in heard:
        first = one.hear(each)
        second = other.hear(
            Round(each.own_s[order], each.planned_s[order], each.told[order], each.capped[order])
        )
        assert first.meeting_s == second.meeting_s
        assert np.array_equal(first.limit_s[order], second.limit_s, equal_nan=True)


def settle(vigil: Vigil, slowness: Numbers, objective_s: Numbers, iterations: int) -> list[Verdict]:
    """Play without noise; every replica's plan takes exactly what it may, the verdict comes LAG later."""
    coming = [objective_s] * LAG
    verdicts = []
    nobody = np.zeros(len(slowness), dtype=np.bool_)
    for _ in range(iterations):
        planned_s = coming.pop(0)
        verdict = vigil.hear(Round(slowness * planned_s, planned_s, np.ones(len(slowness)), nobody))
        coming.append(np.where(np.isnan(verdict.limit_s), objective_s, verdict.limit_s))
        verdicts.append(verdict)
    return verdicts


@settings(max_examples=40)
@given(st.lists(slowdowns, min_size=2, max_size=8), st.floats(1.0, 1.2))
def test_no_one_is_slower_than_the_meeting_and_nothing_spirals(slowness: list[float], longer: float) -> None:
    """Slowed replicas keep their promise: T' stays what the slowest needs, at whatever the others play."""
    slow = np.array(slowness)
    objective_s = np.ones(len(slow))
    objective_s[0] = longer
    need_s = float((slow * objective_s).max())
    verdicts = settle(Vigil(objective_s, objective_s), slow, objective_s, 200)
    for verdict in verdicts:
        if verdict.meeting_s is not None:
            assert abs(verdict.meeting_s / need_s - 1.0) < 1e-9
        planned_s = np.where(np.isnan(verdict.limit_s), objective_s, verdict.limit_s)
        assert (slow * planned_s).max() <= need_s * (1.0 + 1e-9)
    last = verdicts[-1]
    assert not any(verdict.changed for verdict in verdicts[100:]), "a fixed point"
    waits = slow * objective_s < need_s / (1.0 + 2.0 * LEAST_SLACK)
    assert set(np.flatnonzero(waits)) <= set(last.waiting)


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(0, 7), st.floats(1.1, 3.0), st.integers(20, 60))
def test_a_straggler_is_answered_after_two_iterations_and_released_after_one(
    replicas: int, who: int, slowdown: float, lasts: int
) -> None:
    assert lasts > SHORT_SPELL
    who %= replicas
    vigil = Vigil(np.ones(replicas), np.ones(replicas))
    usual, slow = np.ones(replicas), np.ones(replicas)
    slow[who] = slowdown
    nobody = np.zeros(replicas, dtype=np.bool_)

    def hear(own_s: Numbers) -> Verdict:
        return vigil.hear(Round(own_s, usual, usual, nobody))

    for _ in range(30):
        assert hear(usual).meeting_s is None
    assert hear(slow).meeting_s is None, "one slow iteration is a hiccup"
    for _ in range(lasts):
        verdict = hear(slow)
        assert [one.replica for one in verdict.stragglers] == [who]
        assert verdict.stragglers[0].cause is Cause.MEASURED
        assert len(verdict.waiting) == replicas - 1
    verdict = hear(usual)
    assert verdict.meeting_s is None
    assert verdict.stragglers == ()
    assert np.isnan(verdict.limit_s).all()


@settings(max_examples=40)
@given(rounds(hostile=False), st.floats(1e-3, 1e3))
def test_only_durations_count_in_whatever_unit(heard: list[Round], unit: float) -> None:
    """There is no time of day in a round; even another unit of time changes no decision."""
    replicas = len(heard[0].own_s)
    seconds, others = (
        Vigil(np.ones(replicas), np.ones(replicas)),
        Vigil(np.full(replicas, unit), np.full(replicas, unit)),
    )
    for each in heard:
        one = seconds.hear(Round(each.own_s, np.ones(replicas), each.told, each.capped))
        other = others.hear(Round(each.own_s * unit, np.full(replicas, unit), each.told, each.capped))
        assert one.waiting == other.waiting
        assert [s.replica for s in one.stragglers] == [s.replica for s in other.stragglers]
