"""Which clocks are measured, from the highest down, and when lower ones stop paying."""

from itertools import pairwise

import pytest

from perseus_ds.device.simulated import model_named, physics
from perseus_ds.device.simulated.work import Work
from perseus_ds.profile import Point, Sweep, candidate_clocks
from perseus_ds.schedule import Kind

A100 = model_named("a100-sxm4-80gb")


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
    assert candidate_clocks((400, 1000, 700), None) == (1000, 700)
    assert candidate_clocks((1000,), 5) == (1000,)


def sweep_over(clocks_mhz: tuple[int, ...], **effective_j: list[float]) -> int:
    """Record points with these effective energies; how many clocks were measured before it stopped."""
    sweep = Sweep(clocks_mhz)
    while not sweep.finished:
        points = {
            (stage, Kind.FORWARD): Point(sweep.clock_mhz, 1.0, energies[sweep.done] + 50.0)
            for stage, energies in enumerate(effective_j.values())
        }
        sweep.record(points, blocking_power_w=50.0)
    return sweep.done


CLOCKS = (1000, 950, 900, 850, 800, 750)


@pytest.mark.parametrize(
    ("energies", "measured"),
    [
        ([100, 90, 80, 70, 60, 50], 6),
        ([100, 90, 80, 85, 86, 87], 5),
        ([100, 110, 120, 130, 140, 150], 3),
        ([100, 90, 95, 85, 90, 80], 6),
    ],
    ids=["always better", "best in the middle", "never better", "noise of one clock"],
)
def test_it_stops_two_clocks_past_the_best(energies: list[float], measured: int) -> None:
    assert sweep_over(CLOCKS, a=energies) == measured


def test_it_goes_on_while_any_computation_gains() -> None:
    assert sweep_over(CLOCKS, a=[100, 110, 120, 130, 140, 150], b=[100, 90, 80, 70, 60, 50]) == 6


def test_on_a_simulated_gpu_the_best_clock_is_among_those_measured() -> None:
    work = Work(0.4)
    clocks = candidate_clocks(A100.clocks_mhz, 12)
    blocking_w = physics.power_w(A100, 1410, 0.0)

    def effective_j(clock: int) -> float:
        return physics.energy_j(A100, clock, work) - blocking_w * physics.duration_s(A100, clock, work)

    sweep = Sweep(clocks)
    while not sweep.finished:
        clock = sweep.clock_mhz
        point = Point(clock, physics.duration_s(A100, clock, work), physics.energy_j(A100, clock, work))
        sweep.record({(0, Kind.FORWARD): point}, blocking_power_w=blocking_w)
    assert min(clocks, key=effective_j) in clocks[: sweep.done]


def test_clocks_that_a_power_cap_keeps_down_do_not_end_it() -> None:
    """As on a loaded H100: the first three clocks all ran at 860 MHz, the fourth is the first to save."""
    sweep = Sweep(CLOCKS)
    for effective_j in (100.0, 100.1, 100.2, 90.0, 80.0, 70.0):
        assert not sweep.finished
        achieved_mhz = min(sweep.clock_mhz, 860)
        point = Point(sweep.clock_mhz, 1.0, effective_j + 50.0, achieved_mhz=achieved_mhz)
        sweep.record({(0, Kind.FORWARD): point}, blocking_power_w=50.0)
    assert [point.clock_mhz for point in sweep.points[0, Kind.FORWARD]] == list(CLOCKS)
