"""What a job does beside stragglers, in virtual time: real frontiers, 2 % noise on every computation.

The numbers of iteration n decide what is played from iteration n + 2 on.
"""

import numpy as np
import pytest
from stragglers import (
    Trouble,
    energy_above_best_pct,
    excess_pct,
    planned,
    play,
    slow_between,
    slowed,
)

from perseus_ds.straggler.controller import Cause

SLOW = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("replicas", "seed"), [(2, 0), *(pytest.param(*one, marks=SLOW) for one in ((2, 1), (4, 0), (8, 0)))]
)
def test_without_a_straggler_nothing_is_switched_in_10_000_iterations(replicas: int, seed: int) -> None:
    played = play(10_000, lambda *_: Trouble(), replicas=replicas, seed=seed)
    assert played.switches() < 10, "one needless switch per 1 000 iterations"
    assert excess_pct(played, slice(None)) <= 0.001, "no slowdown"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("replicas", [2, 4, pytest.param(16, marks=SLOW)])
@pytest.mark.parametrize("slowdown", [1.1, 1.2, 1.5])
def test_a_straggler_comes_and_goes(slowdown: float, replicas: int, seed: int) -> None:
    played = play(260, slow_between(100, 200, slowdown=slowdown), replicas=replicas, seed=seed)
    others = [replica for replica in range(replicas) if replica != 1]
    changed = slowed(played)
    assert changed[0] <= 101 + 3, "the right plan within 3 iterations after the second slow one"
    assert changed[-1] < 200 + 2, "back within 2 after recovery"
    assert (played.plan[:, 1] == played.plan[0, 1]).all(), "the straggler runs at full speed"
    for replica in others:
        assert (played.plan[104:200, replica] != played.plan[0, replica]).all()
        assert energy_above_best_pct(played, slice(104, 200), replica) <= (1.0 if replicas < 16 else 1.1)
    assert excess_pct(played, slice(104, 200)) <= 0.5


@pytest.mark.parametrize("first", [4, 6])
def test_one_that_comes_before_levels_are_learned_is_answered_as_long_as_it_stays(first: int) -> None:
    """Its window holds both levels then: they are no scatter of its."""
    played = play(40, slow_between(first, 24, slowdown=1.3), replicas=4)
    assert (played.plan[16:24, 0] != played.plan[0, 0]).all()
    assert (played.plan[28:, 0] == played.plan[0, 0]).all()


def test_the_verdict_says_who_and_by_how_much() -> None:
    decision = play(160, slow_between(100, 200)).decisions[-1]
    (straggler,) = decision.stragglers
    assert (straggler.replica, straggler.cause) == (1, Cause.MEASURED)
    assert straggler.slowdown == pytest.approx(1.2, rel=0.005)
    assert decision.sync_time_s == pytest.approx(1.2 * planned().iteration_time_s[0], rel=0.005)
    assert decision.waiting == (0, 2, 3)


@pytest.mark.parametrize("slowdown", [1.02, 1.05])
def test_a_slight_straggler_is_answered_as_well(slowdown: float) -> None:
    played = play(400, slow_between(100, 300, slowdown=slowdown))
    when = slice(140, 300)
    for replica in (0, 2, 3):
        assert energy_above_best_pct(played, when, replica) <= 1.5
    assert excess_pct(played, when) <= 0.5


@pytest.mark.parametrize("of_all", [False, True])
def test_one_slow_iteration_is_a_hiccup(*, of_all: bool) -> None:
    def trouble(replica: int, iteration: int) -> Trouble:
        return Trouble(1.5 if iteration % 40 == 39 and (of_all or replica == iteration // 40 % 4) else 1.0)

    assert play(600, trouble).switches() == 0


def test_a_hiccup_of_a_waiting_replica_changes_nothing() -> None:
    def trouble(replica: int, iteration: int) -> Trouble:
        if replica == 1:
            return Trouble(1.2)
        return Trouble(1.5 if iteration == 100 and replica == 2 else 1.0)

    quiet, played = play(140, slow_between(0, 140)), play(140, trouble)
    assert np.array_equal(quiet.plan[:104], played.plan[:104])
    for before, after in zip(quiet.decisions[100:], played.decisions[100:], strict=True):
        assert after.waiting == before.waiting
        assert after.sync_time_s == pytest.approx(before.sync_time_s, rel=0.002)


@pytest.mark.thorough
def test_flapping_is_answered_twice_and_then_no_more() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(1.2 if replica == 1 and n >= 20 and n // 5 % 2 else 1.0)

    played = play(1000, trouble)
    assert slowed(played)[-1] < 50
    assert played.switches() <= 6
    assert excess_pct(played, slice(50, None)) == pytest.approx(0.0, abs=1e-9)
    for decision in played.decisions[50:]:
        assert [(one.replica, one.cause) for one in decision.stragglers] == [(1, Cause.FLAPPING)]
        assert decision.stragglers[0].slowdown == pytest.approx(1.2, rel=0.02)


def test_a_flapping_replica_that_stays_slow_is_answered_in_the_end() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(1.2 if replica == 1 and (n // 5 % 2 or n >= 100) else 1.0)

    played = play(160, trouble)
    assert (played.plan[95 + 36 :, 0] != played.plan[0, 0]).all(), "after 32 slow iterations at the latest"


def test_two_stragglers_meet_at_the_slower_one() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(1.2 if replica == 1 and 100 <= n < 300 else 1.1 if replica == 2 and n >= 150 else 1.0)

    played = play(400, trouble)
    when = slice(160, 300)
    assert excess_pct(played, when) <= 0.5
    for replica in (0, 3):
        assert energy_above_best_pct(played, when, replica) <= 1.0
    assert (played.plan[when, 2] != played.plan[0, 2]).all(), "the lesser straggler waits as well"
    causes = {one.replica: one.slowdown for one in played.decisions[290].stragglers}
    assert causes == pytest.approx({1: 1.2, 2: 1.1}, rel=0.01)
    after = slice(310, 400)
    assert (played.plan[after, 2] == played.plan[0, 2]).all()
    assert played.decisions[-1].sync_time_s == pytest.approx(1.1 * planned().iteration_time_s[0], rel=0.005)


def test_a_slow_stage_in_the_middle_is_its_replicas_slowness() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(slow_stages=(1.0, 1.3, 1.0, 1.0) if replica == 1 and 100 <= n < 300 else None)

    played = play(400, trouble)
    when = slice(104, 300)
    assert excess_pct(played, when) <= 0.5
    assert energy_above_best_pct(played, when, 0) <= 1.0
    assert slowed(played)[0] <= 104
    assert slowed(played)[-1] < 302


@pytest.mark.thorough
@pytest.mark.parametrize("per_iteration", [0.0003, 0.001, 0.002])
def test_slow_drift_is_followed_both_ways(per_iteration: float) -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(1.0 + per_iteration * max(0, 200 - abs(n - 250)) if replica == 1 else 1.0)

    played = play(500, trouble)
    assert excess_pct(played, slice(50, 250)) <= 0.5
    assert excess_pct(played, slice(250, 450)) <= 0.5
    assert energy_above_best_pct(played, slice(245, 255), 0) <= 3.0, "a median is half a window behind"
    assert (played.plan[-30:] == played.plan[0]).all()


def test_everyone_equally_slow_is_nobodys_wait() -> None:
    played = play(400, lambda _, n: Trouble(1.2 if n >= 100 else 1.0))
    assert played.switches() == 0
    assert played.decisions[-1].sync_time_s is None


def test_what_is_told_is_believed_at_once_and_until_it_is_withdrawn() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(announced=1.2 if replica == 1 and 100 <= n < 200 else 1.0)

    played = play(260, trouble)
    changed = slowed(played)
    assert changed[0] == 102
    assert changed[-1] == 201
    assert played.decisions[150].stragglers[0].cause is Cause.ANNOUNCED
    assert played.decisions[150].sync_time_s == pytest.approx(1.2 * planned().iteration_time_s[0], rel=0.005)
    assert played.decisions[150].unconfirmed == (1,), "it measures as fast as the others"
    assert played.decisions[-1].unconfirmed == ()


def test_what_is_told_gives_way_to_what_is_measured() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        slow = replica == 1 and n >= 102
        return Trouble(1.15 if slow else 1.0, announced=1.2 if replica == 1 and n >= 100 else 1.0)

    played = play(200, trouble)
    assert played.decisions[-1].stragglers[0].cause is Cause.MEASURED
    assert played.decisions[-1].sync_time_s == pytest.approx(1.15 * planned().iteration_time_s[0], rel=0.005)
    assert excess_pct(played, slice(110, None)) <= 0.5


def test_iterations_of_which_nothing_is_known_change_nothing() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(1.2 if replica == 1 and 100 <= n < 300 else 1.0, unknown=n % 3 == 0)

    played = play(400, trouble)
    assert excess_pct(played, slice(110, 300)) <= 0.5
    assert energy_above_best_pct(played, slice(110, 300), 0) <= 1.0
    nothing = play(100, lambda *_: Trouble(1.2, unknown=True))
    assert nothing.switches() == 0


def test_an_audit_beside_a_straggler_leaves_the_verdict_alone() -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(1.2 if replica == 1 else 1.0, unknown=100 <= n < 140)

    played = play(200, trouble)
    assert not any(decision.changed for decision in played.decisions[101:141]), "told one iteration later"


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, 100])
def test_a_capped_straggler_throttles_by_itself_and_is_named_as_long_as_it_is_capped(first: int) -> None:
    def trouble(replica: int, n: int) -> Trouble:
        return Trouble(cap_mhz=1140 if replica == 1 and first <= n < 300 else None)

    played = play(420, trouble)
    when = slice(first + 5, 300)
    for decision in played.decisions[when]:
        assert [(one.replica, one.cause) for one in decision.stragglers] == [(1, Cause.CAPPED)]
    assert (played.plan[:, 1] == played.plan[0, 1]).all(), "it runs at full speed"
    assert excess_pct(played, when) <= 0.5
    assert energy_above_best_pct(played, when, 0) <= 1.0
    assert slowed(played)[-1] < 300 + 2
