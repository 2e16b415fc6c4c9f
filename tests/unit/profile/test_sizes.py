"""Batches of different shapes are compared at one size, and variation that nobody explains is seen."""

import numpy as np
import pytest

from perseus_ds.profile import CounterTrace, Interval, Window
from perseus_ds.profile.estimate import estimate
from perseus_ds.profile.loads import differ, spread, variation
from perseus_ds.schedule import Instruction, Kind, Load

FORWARD = Instruction(0, Kind.FORWARD, 0)


def test_sizes_differ_by_more_than_rounding() -> None:
    assert differ(np.array([100.0, 110.0]))
    assert not differ(np.array([0.0, 5.0]))
    assert not differ(np.array([100.0, 101.0]))


def window(sizes: list[int], *, told: bool, clock: float = 1.0) -> Window:
    """One forward after another, in proportion to its size, at 100 W."""
    runs, now_s = [], 0.0
    for size in sizes:
        lasts_s = size / 100.0 * clock
        runs.append(Interval(FORWARD, now_s, now_s + lasts_s, Load(size) if told else None))
        now_s += lasts_s
    ticks_s = np.arange(0.0, now_s, 0.1)
    trace = CounterTrace(ticks_s, 100.0 * ticks_s)
    return Window(1000, 0.0, now_s, tuple(runs), trace, loads={0: Load(100.0)})


def test_windows_of_other_batches_at_other_clocks_tell_the_clocks_alone() -> None:
    """Small batches at one clock, large ones at a slower one: without sizes they would differ threefold."""
    high = estimate(window([50, 100, 100, 50], told=True)).points[0, Kind.FORWARD]
    low = estimate(window([200, 100, 200, 100], told=True, clock=1.2)).points[0, Kind.FORWARD]
    assert low.time_s / high.time_s == pytest.approx(1.2)
    assert low.energy_j / high.energy_j == pytest.approx(1.2, rel=0.01)


def test_what_varies_beyond_its_size_is_seen() -> None:
    sizes = [50, 100, 150, 100] * 3
    assert estimate(window(sizes, told=True)).spread < 0.01
    assert estimate(window(sizes, told=False)).spread > 0.5
    assert spread(np.full(10, 2.0)) == 0.0


def test_what_a_window_is_brought_to_can_be_brought_to_the_mean_of_what_was_seen() -> None:
    """Microbatches of twice the size, and of half and twice it: as much more work on average."""
    seen = estimate(window([100, 300, 100, 300], told=True))
    assert seen.larger[0, Kind.FORWARD] == pytest.approx(2.0)
    point = seen.points[0, Kind.FORWARD]
    assert seen.larger[0, Kind.FORWARD] * point.time_s == pytest.approx(2.0), "the mean of 1 and 3 s"


def test_sizes_vary_within_an_iteration_or_not_at_all() -> None:
    random = np.random.default_rng(1)
    numbers = np.tile(np.arange(4.0), 1000)
    assert variation(random.normal(100.0, 20.0, 4000), numbers) == pytest.approx(0.2, rel=0.05)
    assert variation(np.repeat([100.0, 140.0], 4), numbers[:8]) == 0.0, "batches of one size each"
    assert variation(np.zeros(10), numbers[:10]) == 0.0
    assert variation(np.array([100.0, 140.0]), np.zeros(2)) == 0.0, "one microbatch in an iteration"


def test_durations_are_brought_to_the_size_of_their_own_stage() -> None:
    """Forwards of 2 s on 200 elements: 1 s where stage 1 counts 100, whatever stage 0 counts."""
    names = [Instruction(1, Kind.FORWARD, n) for n in range(8)]
    runs = tuple(Interval(name, 2.0 * n, 2.0 * n + 2.0, Load(200)) for n, name in enumerate(names))
    ticks_s = np.arange(0.0, 16.5, 0.5)
    trace = CounterTrace(ticks_s, 100.0 * ticks_s)
    seen = Window(1000, 0.0, 16.0, runs, trace, loads={0: Load(400.0), 1: Load(100.0)})
    assert estimate(seen).points[1, Kind.FORWARD].time_s == pytest.approx(1.0)
    assert estimate(seen).larger[1, Kind.FORWARD] == pytest.approx(2.0)
