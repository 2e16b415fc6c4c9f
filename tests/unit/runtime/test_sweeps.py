"""A sweep there and back: both ways are averaged clock by clock."""

import pytest

from perseus_ds.profile import Point
from perseus_ds.runtime.pooling import MeasuredSweep, Pooled
from perseus_ds.schedule import Kind


def window(clock_mhz: int, energy_j: float) -> Pooled:
    return Pooled({(0, Kind.FORWARD): Point(clock_mhz, 1.0, energy_j)}, {}, 0.0)


def drifting(sweeps: MeasuredSweep, *, first: int) -> int:
    window = first
    while not sweeps.finished:
        clock_mhz = sweeps.clock_mhz
        time_s = (1400 / clock_mhz) * (1.0 + 0.05 * window)
        points = {(0, Kind.FORWARD): Point(clock_mhz, time_s, 100.0 * time_s)}
        sweeps.record(Pooled(points, {}, 60.0, spread=0.3))
        window += 1
    return window


def test_there_and_back_what_grows_steadily_changes_no_clocks_share() -> None:
    there = MeasuredSweep((1400, 1050, 700))
    half = drifting(there, first=0)
    assert there.spread == 0.3
    back = there.back()
    assert back.clock_mhz == 700
    drifting(back, first=half)
    both = there.joined(back)
    points = both.points[0, Kind.FORWARD]
    assert [point.clock_mhz for point in points] == [1400, 1050, 700]
    assert [point.time_s / points[0].time_s for point in points] == pytest.approx([1.0, 4 / 3, 2.0])
    assert all(point.time_se_s > 0.02 * point.time_s for point in points[:1]), "what both differ by"
    assert both.finished
    assert len(both.windows) == 3


def test_what_is_refused_on_the_way_back_is_in_neither() -> None:
    there = MeasuredSweep((1400, 1050, 700))
    half = drifting(there, first=0)
    back = there.back()
    back.record(window(700, 9.0))
    back.record(None)
    assert (back.clock_mhz, back.finished) == (1400, False)
    drifting(back, first=half)
    both = there.joined(back)
    assert both.clocks_mhz == (1400, 700)
    assert both.refused_mhz == {1050}
    assert [point.clock_mhz for point in both.points[0, Kind.FORWARD]] == [1400, 700]


def test_a_sweep_goes_on_for_as_long_as_clocks_are_chosen_and_is_bounded_by_what_was_seen() -> None:
    sweep = MeasuredSweep((1000,))
    assert sweep.slower_at(500) == 2.0, "nothing was seen yet"
    keys = (0, Kind.FORWARD), (0, Kind.BACKWARD)
    for factors in ((1.0, 1.0), (1.1, 1.2)):
        points = {key: Point(sweep.clock_mhz, 2.0 * f, 9.0) for key, f in zip(keys, factors, strict=True)}
        sweep.record(Pooled(points, {}, 0.0))
        assert sweep.finished
        sweep.clocks_mhz += (800 if len(sweep.windows) == 1 else 500,)
    assert [point.clock_mhz for point in sweep.points[keys[0]]] == [1000, 800]
    assert sweep.slower_at(800) == pytest.approx(1.2), "the slower of both"
    assert sweep.slower == sweep.slower_at(500) == pytest.approx(1.0 + 0.8), "0.2 of 0.25 there"
