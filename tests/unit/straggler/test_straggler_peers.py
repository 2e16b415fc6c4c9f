"""Ranks that meet in every layer: which GPU they wait for, when that is believed, and what it buys."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from perseus_ds.plan import Options
from perseus_ds.straggler.peers import Claims, PeerLateness, PeerStraggler, PeerWatch, Ran, slower_clocks
from perseus_ds.straggler.peers.lateness import REFERENCE
from perseus_ds.straggler.peers.watch import GONE, LEAST_ROOM, MOST_PROOFS, PROOFS, SILENCE

COMPUTING_W, WAITING_W, STEP_S, COMPUTES_S = 390.0, 84.0, 0.5, 9.5
CALM = Ran(COMPUTES_S + STEP_S, COMPUTES_S, COMPUTES_S * COMPUTING_W + STEP_S * WAITING_W)


def slow(by: float, *, own: float, capped: bool = False) -> Ran:
    """All compute so much longer; this GPU works for ``own`` of that and waits for the rest."""
    extra_s = by * COMPUTES_S
    energy_j = CALM.energy_j + extra_s * (own * COMPUTING_W + (1.0 - own) * WAITING_W)
    return Ran(CALM.lasts_s + extra_s, COMPUTES_S + extra_s, energy_j, capped)


def after_calm(*more: Ran, blocking_w: float = WAITING_W) -> list[float | None]:
    lateness = PeerLateness()
    lateness.expect(blocking_w)
    for _ in range(REFERENCE):
        assert lateness.of(CALM, "plan 0") is None, "nothing to compare with yet"
    return [lateness.of(one, "plan 0") for one in more]


def test_who_computes_longer_is_late_and_who_waits_is_not() -> None:
    assert after_calm(slow(0.05, own=1.0), slow(0.05, own=0.0)) == pytest.approx([0.05, 0.0], abs=1e-9)


@pytest.mark.parametrize("blocking_w", [0.0, COMPUTING_W, 8e11])
def test_where_the_power_of_waiting_was_not_seen_the_two_are_told_apart(blocking_w: float) -> None:
    own, waits = after_calm(slow(0.05, own=1.0), slow(0.05, own=0.0), blocking_w=blocking_w)
    assert own == pytest.approx(0.05, abs=0.003)
    assert waits == pytest.approx(0.0, abs=0.003)


def test_a_gpu_that_only_takes_more_energy_makes_nobody_wait() -> None:
    hot = Ran(CALM.lasts_s, CALM.computing_s, 1.1 * CALM.energy_j)
    assert after_calm(hot) == [0.0]


def test_a_gpu_below_its_clock_is_late_although_it_takes_less_energy() -> None:
    held = slow(0.05, own=0.2, capped=True)
    assert after_calm(held) == pytest.approx([0.05])


def test_other_clocks_are_another_reference() -> None:
    lateness = PeerLateness()
    lateness.expect(WAITING_W)
    for _ in range(REFERENCE):
        lateness.of(CALM, "plan 0")
    assert lateness.of(slow(0.05, own=1.0), "plan 1") is None


def test_slow_drift_is_followed_and_nobody_is_late_by_it() -> None:
    drift = [Ran(CALM.lasts_s, CALM.computing_s, CALM.energy_j * (1.0 + n / 20000)) for n in range(100)]
    *_, late = after_calm(
        *drift, Ran(1.006 * drift[-1].lasts_s, 1.006 * CALM.computing_s, drift[-1].energy_j)
    )
    assert late is not None
    assert late < 0.003


def claims(*rows: tuple[float, int, float]) -> Claims:
    late, rank, following = zip(*rows, strict=True)
    return Claims(np.array(late), np.array(rank), np.array(following))


SLOW = claims((0.05, 5, 0.002))
SILENT = claims((-math.inf, 0, -math.inf))
OVER = claims((0.0, 7, 0.0))


def proved(watch: PeerWatch, one: Claims = SLOW) -> int:
    """After how many iterations it is believed."""
    return next(n for n in range(1, 100) if watch.observe(one))


def test_it_takes_four_iterations_in_a_row_after_the_first() -> None:
    watch = PeerWatch([0.005])
    assert proved(watch) == PROOFS + 1
    assert watch.found(0) == PeerStraggler(5, 0.05, pytest.approx(0.039))


@pytest.mark.parametrize(
    "between",
    [claims((0.05, 6, 0.002)), claims((0.05, 5, 0.04)), claims((0.0099, 5, 0.0))],
    ids=["another rank", "all are late", "less than a hundredth"],
)
def test_one_iteration_that_says_otherwise_begins_it_anew(between: Claims) -> None:
    watch = PeerWatch([0.005])
    for _ in range(20):
        for one in (SLOW, SLOW, SLOW, between):
            assert watch.observe(one) == []
    assert watch.found(0) is None


def test_noise_names_nobody() -> None:
    random, watch = Random(1), PeerWatch([0.005] * 8)
    for _ in range(2000):
        rows = [sorted((abs(random.gauss(0.0, 0.004)) for _ in range(8)), reverse=True) for _ in range(8)]
        assert watch.observe(claims(*[(row[0], random.randrange(8), row[1]) for row in rows])) == []


def test_too_little_room_is_named_and_not_answered() -> None:
    watch = PeerWatch([0.02])
    proved(watch, claims((0.05, 5, 0.0)))
    found = watch.found(0)
    assert found is not None
    assert found.room == 0.0
    assert LEAST_ROOM > 0.05 - 2.2 * 0.02


def test_two_iterations_end_it_and_the_next_time_takes_twice_the_proof() -> None:
    watch = PeerWatch([0.005])
    proofs = []
    for _ in range(6):
        proofs.append(proved(watch) - 1)
        assert [watch.observe(OVER) for _ in range(GONE)] == [[], [0]]
        assert watch.found(0) is None
    assert proofs == [4, 8, 16, 32, MOST_PROOFS, MOST_PROOFS]


def test_who_says_nothing_any_more_is_not_waited_for_longer_than_that() -> None:
    watch = PeerWatch([0.005])
    proved(watch)
    assert [watch.observe(SILENT) for _ in range(SILENCE)] == [[]] * (SILENCE - 1) + [[0]]


def test_groups_are_judged_apart() -> None:
    watch = PeerWatch([0.005, 0.005])
    both = claims((0.0, 1, 0.0), (0.05, 5, 0.002))
    assert [watch.observe(both) for _ in range(PROOFS + 1)][-1] == [1]
    assert watch.found(0) is None
    assert watch.suspect(1) == 5


def options(memory_bound: float) -> Options:
    clocks = np.array([1410, 1200, 1005, 705])
    time_s = 0.4 * (memory_bound + (1.0 - memory_bound) * 1410 / clocks)
    return Options(clocks, time_s, np.ones(4))


GRID = range(210, 1411, 15)


@pytest.mark.parametrize("room", [0.0, 0.01, 0.04, 0.2])
def test_no_computation_takes_longer_than_the_room_and_one_step_lower_would(room: float) -> None:
    several = [options(0.05), options(0.5)]
    for clock, slower in slower_clocks(several, GRID, room).items():
        assert slower <= clock
        assert slower in GRID
        assert clock / slower * 0.95 + 0.05 * 1.0 <= (1.0 + room) * 1.0 + 0.06
        if slower > 705:
            assert 0.95 * clock / (slower - 15) + 0.05 > 1.0 + 0.9 * room


def test_nothing_is_asked_for_below_what_was_measured() -> None:
    assert slower_clocks([options(0.05)], GRID, 9.0) == dict.fromkeys([1410, 1200, 1005, 705], 705)
