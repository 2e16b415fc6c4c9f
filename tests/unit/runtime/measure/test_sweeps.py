"""Teams with grids of their own sweep in step, until the last one is through."""

import pytest

from perseus_ds.profile import Point, Sweep
from perseus_ds.profile.estimating.estimate import Estimate
from perseus_ds.runtime.hardware_groups import HardwareGroup
from perseus_ds.runtime.measure.pooling import Measured, Pooled, pool_groups
from perseus_ds.runtime.measure.sweeps import Sweeps
from perseus_ds.schedule import Kind

TEAMS = (HardwareGroup((0,)), HardwareGroup((1, 2)))


def window(clock_mhz: int, energy_j: float) -> Pooled:
    return Pooled({(0, Kind.FORWARD): Point(clock_mhz, 1.0, energy_j)}, {}, 0.0)


@pytest.mark.parametrize(("mine", "played"), [(0, [1410, 900, 1410, 1410]), (1, [1740, 1500, 1200, 900])])
def test_who_is_through_stays_at_its_highest_clock(mine: int, played: list[int]) -> None:
    sweeps = Sweeps([Sweep((1410, 900)), Sweep((1740, 1500, 1200, 900))], mine=mine)
    seen = []
    while not sweeps.finished:
        seen.append(sweeps.clock_mhz)
        sweeps.record([window(1410, 9.0 - sweeps.done), window(1740, 9.0 - sweeps.done)])
    assert seen == played
    assert [len(windows) for windows in sweeps.windows] == [2, 4]
    assert [len(sweep.points[0, Kind.FORWARD]) for sweep in sweeps.sweeps] == [2, 4]


def rank_status(replica: int, *, time_s: float, reducing_s: float) -> Measured:
    point = Point(1000, time_s, 100.0 * time_s)
    points, fixed_s = {(0, Kind.FORWARD): point}, {(0, Kind.REDUCE_GRADS): reducing_s}
    return Measured(replica, Estimate(1000, points, 50.0 * time_s, fixed_s, {}))


def test_teams_are_pooled_apart_but_for_the_reduction_where_all_meet() -> None:
    """The slowest alone does not wait: its reduction is everyone's, or waiting would be planned for."""
    words = [
        rank_status(0, time_s=1.0, reducing_s=2.5),
        rank_status(1, time_s=3.0, reducing_s=0.7),
        rank_status(2, time_s=3.1, reducing_s=0.5),
    ]
    first, second = pool_groups(words, TEAMS)
    assert (first.points[0, Kind.FORWARD].time_s, second.points[0, Kind.FORWARD].time_s) == (1.0, 3.05)
    assert (first.blocking_power_w, second.blocking_power_w) == (50.0, 152.5)
    assert first.fixed_s == second.fixed_s == {(0, Kind.REDUCE_GRADS): 0.5}


def drifting(sweeps: Sweeps, *, first: int) -> int:
    """Measure all clocks while batches grow steadily: each window's work a twentieth longer."""
    window = first
    while not sweeps.finished:
        clock_mhz = sweeps.clock_mhz
        time_s = (1400 / clock_mhz) * (1.0 + 0.05 * window)
        points = {(0, Kind.FORWARD): Point(clock_mhz, time_s, 100.0 * time_s)}
        sweeps.record([Pooled(points, {}, 60.0, spread=0.3)])
        window += 1
    return window


def test_there_and_back_what_grows_steadily_changes_no_clocks_share() -> None:
    there = Sweeps([Sweep((1400, 1050, 700))])
    half = drifting(there, first=0)
    assert there.spread == 0.3
    back = there.back()
    assert back.clock_mhz == 700
    drifting(back, first=half)
    both = there.joined(back)
    points = both.sweeps[0].points[0, Kind.FORWARD]
    assert [point.clock_mhz for point in points] == [1400, 1050, 700]
    assert [point.time_s / points[0].time_s for point in points] == pytest.approx([1.0, 4 / 3, 2.0])
    assert all(point.time_se_s > 0.02 * point.time_s for point in points[:1]), "what both differ by"
    assert both.finished
    assert len(both.windows[0]) == 3


def test_what_is_refused_on_the_way_back_is_in_neither() -> None:
    there = Sweeps([Sweep((1400, 1050, 700))])
    half = drifting(there, first=0)
    back = there.back()
    back.record([window(700, 9.0)])
    back.record([None])
    assert (back.clock_mhz, back.finished) == (1400, False)
    drifting(back, first=half)
    both = there.joined(back)
    assert both.sweeps[0].clocks_mhz == (1400, 700)
    assert both.sweeps[0].refused_mhz == {1050}
    assert [point.clock_mhz for point in both.sweeps[0].points[0, Kind.FORWARD]] == [1400, 700]


def test_what_one_team_refuses_the_other_measures_all_the_same() -> None:
    sweeps = Sweeps([Sweep((1410, 900)), Sweep((1740, 1500))])
    sweeps.record([window(1410, 9.0), window(1740, 9.0)])
    sweeps.record([None, window(1500, 8.0)])
    assert [sweep.clocks_mhz for sweep in sweeps.sweeps] == [(1410,), (1740, 1500)]
    sweeps.go_on([915, None])
    sweeps.record([window(915, 8.0), window(1740, 9.0)])
    assert [sweep.points[0, Kind.FORWARD][-1].clock_mhz for sweep in sweeps.sweeps] == [915, 1500]
