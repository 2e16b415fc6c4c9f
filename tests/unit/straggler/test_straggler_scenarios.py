"""What a job does beside stragglers, in virtual time: real frontiers, 2 % noise on every computation.

The numbers of iteration n decide what is played from iteration n + 2 on.
"""

import pytest
from stragglers import planned, play, slow

from perseus_ds.simulation.scenario import Straggler
from perseus_ds.straggler.controller import Cause

SLOW = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("replicas", "seed"), [(2, 0), *(pytest.param(*one, marks=SLOW) for one in ((2, 1), (4, 0), (8, 0)))]
)
def test_without_a_straggler_nothing_is_switched_in_10_000_iterations(replicas: int, seed: int) -> None:
    played = play(10_000, replicas=replicas, seed=seed)
    assert played.switches() < 10, "one needless switch per 1 000 iterations"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("replicas", [2, 4, pytest.param(16, marks=SLOW)])
@pytest.mark.parametrize("slowdown", [1.1, 1.2, 1.5])
def test_a_straggler_comes_and_goes(slowdown: float, replicas: int, seed: int) -> None:
    played = play(260, slow(100, 200, factor=slowdown), replicas=replicas, seed=seed)
    changed = played.slowed()
    assert changed[0] <= 101 + 3, "the right plan within 3 iterations after the second slow one"
    assert changed[-1] < 200 + 2, "back within 2 after recovery"
    assert (played.plan[:, 1] == played.plan[0, 1]).all(), "the straggler runs at full speed"
    for replica in set(range(replicas)) - {1}:
        assert (played.plan[104:200, replica] != played.plan[0, replica]).all()
        above_pct = played.energy_above_best_pct(slice(104, 200), replica)
        assert above_pct <= (1.0 if replicas < 16 else 1.1)
    assert played.excess_pct(slice(104, 200)) <= 0.27, "what the answer accepts"


@pytest.mark.parametrize("first", [4, 6])
def test_one_that_comes_before_levels_are_learned_is_answered_as_long_as_it_stays(first: int) -> None:
    """Its window holds both levels then: they are no scatter of its."""
    played = play(40, slow(first, 24, factor=1.3))
    assert (played.plan[16:24, 0] != played.plan[0, 0]).all()
    assert (played.plan[28:, 0] == played.plan[0, 0]).all()


def test_the_verdict_says_who_and_by_how_much() -> None:
    decision = play(160, slow(100, 200)).decisions[-1]
    (straggler,) = decision.stragglers
    assert (straggler.replica, straggler.cause) == (1, Cause.MEASURED)
    assert straggler.slowdown == pytest.approx(1.2, rel=0.005)
    assert decision.sync_time_s == pytest.approx(1.2 * planned().iteration_time_s[0], rel=0.005)
    assert decision.waiting == (0, 2, 3)


@pytest.mark.parametrize("slowdown", [1.02, 1.05])
def test_a_slight_straggler_is_answered_as_well(slowdown: float) -> None:
    played = play(400, slow(100, 300, factor=slowdown))
    when = slice(140, 300)
    for replica in (0, 2, 3):
        assert played.energy_above_best_pct(when, replica) <= 1.6
    assert played.excess_pct(when) <= 0.5


@pytest.mark.parametrize("of_all", [False, True])
def test_one_slow_iteration_is_a_hiccup(*, of_all: bool) -> None:
    hiccups = [
        slow(n, n + 1, factor=1.5, replica=replica)
        for n in range(39, 600, 40)
        for replica in (range(4) if of_all else [n // 40 % 4])
    ]
    assert play(600, *hiccups).switches() == 0


def test_a_hiccup_of_a_waiting_replica_changes_nothing() -> None:
    quiet = play(140, slow(0))
    played = play(140, slow(0), slow(100, 101, factor=1.5, replica=2))
    assert played.plan == pytest.approx(quiet.plan, rel=0.01)
    for before, after in zip(quiet.decisions[100:], played.decisions[100:], strict=True):
        assert after.waiting == before.waiting
        assert after.sync_time_s == pytest.approx(before.sync_time_s, rel=0.005)


@pytest.mark.thorough
def test_flapping_is_answered_twice_and_then_no_more() -> None:
    played = play(1000, *(slow(n, n + 5) for n in range(25, 1000, 10)))
    assert played.slowed()[-1] < 50
    assert played.switches() <= 6
    for decision in played.decisions[50:]:
        assert [(one.replica, one.cause) for one in decision.stragglers] == [(1, Cause.FLAPPING)]
        assert decision.stragglers[0].slowdown == pytest.approx(1.2, rel=0.02)


def test_a_flapping_replica_that_stays_slow_is_answered_in_the_end() -> None:
    played = play(160, *(slow(n, n + 5) for n in range(5, 100, 10)), slow(100))
    assert (played.plan[95 + 36 :, 0] != played.plan[0, 0]).all(), "after 32 slow iterations at the latest"


def test_two_stragglers_meet_at_the_slower_one() -> None:
    played = play(400, slow(100, 300), slow(150, factor=1.1, replica=2))
    when = slice(160, 300)
    assert played.excess_pct(when) <= 0.5
    for replica in (0, 3):
        assert played.energy_above_best_pct(when, replica) <= 1.0
    assert (played.plan[when, 2] != played.plan[0, 2]).all(), "the lesser straggler waits as well"
    causes = {one.replica: one.slowdown for one in played.decisions[290].stragglers}
    assert causes == pytest.approx({1: 1.2, 2: 1.1}, rel=0.01)
    after = slice(310, 400)
    assert (played.plan[after, 2] == played.plan[0, 2]).all()
    assert played.decisions[-1].sync_time_s == pytest.approx(1.1 * planned().iteration_time_s[0], rel=0.005)


def test_a_slow_stage_in_the_middle_is_its_replicas_slowness() -> None:
    played = play(400, slow(100, 300, factor=1.3, rank=1))
    when = slice(104, 300)
    assert played.excess_pct(when) <= 0.5
    assert played.energy_above_best_pct(when, 0) <= 1.0
    assert played.slowed()[0] <= 104
    assert played.slowed()[-1] < 302


@pytest.mark.thorough
@pytest.mark.parametrize("per_iteration", [0.0003, 0.001, 0.002])
def test_slow_drift_is_followed_both_ways(per_iteration: float) -> None:
    drift = [slow(n, n + 1, factor=1.0 + per_iteration * (200 - abs(n - 250))) for n in range(51, 450)]
    played = play(500, *drift)
    assert played.excess_pct(slice(50, 250)) <= 0.5
    assert played.excess_pct(slice(250, 450)) <= 0.5
    assert played.energy_above_best_pct(slice(245, 255), 0) <= 3.0, "a median is half a window behind"
    assert (played.plan[-30:] == played.plan[0]).all()


def test_everyone_equally_slow_is_nobodys_wait() -> None:
    played = play(400, *(slow(100, replica=replica) for replica in range(4)))
    assert played.switches() == 0
    assert played.decisions[-1].sync_time_s is None


def announced(first: int, last: int | None = None) -> Straggler:
    return Straggler(kind="announced", pipeline=1, factor=1.2, first=first, last=last)


def test_what_is_told_is_believed_until_it_is_withdrawn_or_something_else_is_measured() -> None:
    played = play(260, announced(100, 200))
    changed, told = played.slowed(), played.decisions[150]
    assert (changed[0], changed[-1]) == (102, 201)
    assert told.stragglers[0].cause is Cause.ANNOUNCED
    assert told.sync_time_s == pytest.approx(1.2 * planned().iteration_time_s[0], rel=0.005)
    assert told.unconfirmed == (1,), "it measures as fast as the others"
    assert played.decisions[-1].unconfirmed == ()
    played = play(200, announced(100), slow(102, factor=1.15))
    last = played.decisions[-1]
    assert last.stragglers[0].cause is Cause.MEASURED
    assert last.sync_time_s == pytest.approx(1.15 * planned().iteration_time_s[0], rel=0.005)
    assert played.excess_pct(slice(110, None)) <= 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, 100])
def test_a_capped_straggler_throttles_by_itself_and_is_named_as_long_as_it_is_capped(first: int) -> None:
    played = play(420, Straggler(kind="cap", pipeline=1, mhz=1140, first=first, last=300))
    when = slice(first + 5, 300)
    for decision in played.decisions[when]:
        assert [(one.replica, one.cause) for one in decision.stragglers] == [(1, Cause.CAPPED)]
    assert (played.plan[:, 1] == played.plan[0, 1]).all(), "it runs at full speed"
    assert played.excess_pct(when) <= 0.5
    assert played.energy_above_best_pct(when, 0) <= 1.0
    assert played.slowed()[-1] < 300 + 2
