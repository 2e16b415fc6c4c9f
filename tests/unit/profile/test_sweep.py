"""The clocks of a sweep: spread evenly where they are given, and what an iteration loses at each."""

from itertools import pairwise

import pytest

from perseus_ds.device.simulated.models import model_named
from perseus_ds.profile import Point, Sweep, candidate_clocks
from perseus_ds.schedule import Kind

A100 = model_named("a100-sxm4-80gb")
KEYS = (0, Kind.FORWARD), (0, Kind.BACKWARD)


@pytest.mark.parametrize("count", [2, 3, 5, 12, 50])
def test_candidates_spread_from_the_highest_clock_to_half_of_it(count: int) -> None:
    clocks = candidate_clocks(A100.clocks_mhz, count)
    assert len(clocks) == len(set(clocks)) <= count
    assert clocks[0] == 1410
    assert 705 <= clocks[-1] < 720
    assert list(clocks) == sorted(clocks, reverse=True)
    assert set(clocks) <= set(A100.clocks_mhz)
    gaps = [high - low for high, low in pairwise(clocks)]
    assert max(gaps) - min(gaps) <= 15


def test_a_grid_of_few_clocks_is_taken_whole() -> None:
    assert candidate_clocks((1000, 700, 400), 12) == (1000, 700)
    assert candidate_clocks((1000,), 5) == (1000,)


def test_a_sweep_goes_on_for_as_long_as_clocks_are_chosen() -> None:
    sweep = Sweep((1000,))
    for clock_mhz in (700, 850):
        sweep.record({key: Point(sweep.clock_mhz, 1.0, 9.0) for key in KEYS})
        assert sweep.finished
        sweep.go_on(clock_mhz)
        assert (sweep.finished, sweep.clock_mhz) == (False, clock_mhz)
    assert [point.clock_mhz for point in sweep.points[KEYS[0]]] == [1000, 700]


def test_an_iteration_is_slower_by_what_was_seen_and_never_by_more_than_its_clock() -> None:
    sweep = Sweep((1000, 800))
    assert sweep.slower(500) == 2.0, "nothing was seen yet"
    for factors in ((1.0, 1.0), (1.1, 1.2)):
        sweep.record(
            {key: Point(sweep.clock_mhz, 2.0 * one, 9.0) for key, one in zip(KEYS, factors, strict=True)}
        )
    assert sweep.slower(800) == pytest.approx(1.2), "the slower of both"
    assert sweep.slower(500) == pytest.approx(1.0 + 0.8), "0.2 of 0.25 there"
