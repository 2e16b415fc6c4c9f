"""Clocks that a sweep measures, what it costs, and how that is diluted; heat."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work, duration_s, energy_j
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.profile import CounterTrace, Point, Profile, smooth
from perseus_ds.profile.records import Computation
from perseus_ds.profile.sweep import (
    PLACES,
    SweepCost,
    SweepPace,
    WindowLength,
    clocks_held,
    cost_of,
    keyed_by_achieved_clock,
    next_clock,
)
from perseus_ds.profile.temperature import (
    Thermal,
    ThermalHistory,
    fit_power_per_kelvin,
    temperature_correction,
)
from perseus_ds.schedule import Kind

WORKS = {Kind.FORWARD: Work(0.03, 0.2, 0.85), Kind.BACKWARD: Work(0.06, 0.2, 0.9)}
WEIGHTS = (1.02, 1.0, 1.0, 1.1)


def true_point(gpu: str, mhz: int, work: Work) -> Point:
    model = model_named(gpu)
    time_s = duration_s(model, mhz, work)
    capped = [one for one in model.clocks_mhz if duration_s(model, one, work) <= time_s * (1 + 1e-9)]
    return Point(mhz, time_s, energy_j(model, mhz, work), achieved_mhz=min(capped))


def swept(
    gpu: str, *, share: float, seed: int = 0, count: int = len(PLACES)
) -> dict[Computation, tuple[Point, ...]]:
    """Sweep a GPU with errors; all points, highest clock first."""
    draw, grid = np.random.default_rng(seed), model_named(gpu).clocks_mhz
    points: dict[Computation, list[Point]] = {}
    asked: list[int] = []
    while (clock := next_clock(points, asked, grid, count)) is not None:
        asked.append(clock)
        for stage, weight in enumerate(WEIGHTS):
            for kind, work in WORKS.items():
                one = true_point(gpu, clock, work.times(weight))
                time, energy = 1.0 + share * draw.standard_normal(2)
                known = replace(one, time_se_s=share * one.time_s, energy_se_j=share * one.energy_j)
                seen = replace(known, time_s=one.time_s * time, energy_j=one.energy_j * energy)
                points.setdefault((stage, kind), []).append(seen)
    return {key: tuple(sorted(own, key=lambda one: -one.clock_mhz)) for key, own in points.items()}


@pytest.mark.thorough
def test_no_clock_is_predicted_above_what_a_capped_gpu_reaches() -> None:
    points = swept("h100-sxm", share=0.0)
    found = smooth(Profile(points, grid_mhz=tuple(model_named("h100-sxm").clocks_mhz)))
    for key, own in found.points.items():
        reached = points[key][0].achieved_mhz
        assert reached is not None
        assert all(one.clock_mhz <= reached for one in own if one not in found.of(*key)[:1])


def test_five_places_of_the_highest_clock_or_fewer_spread_over_the_same_range() -> None:
    grid = range(1000, 200, -10)
    assert clocks_held(grid, 5) == clocks_held(grid, 24) == (1000, 890, 780, 600, 500)
    for count in (2, 3, 4):
        found = clocks_held(grid, count)
        assert (len(found), found[0], found[-1]) == (count, 1000, 500)
        points = swept("a100-sxm4-80gb", share=0.02, count=count)
        assert len(points[0, Kind.FORWARD]) == count


def test_places_are_of_the_highest_clock_that_holds_or_beside_one_that_was_refused() -> None:
    capped, held = (
        {(0, Kind.FORWARD): [Point(1000, 1.0, 100.0, achieved_mhz=achieved_mhz)]}
        for achieved_mhz in (900, 1000)
    )
    assert next_clock(capped, [1000], range(1000, 200, -10), 5) == 800
    assert next_clock(held, [1000], [mhz for mhz in range(1000, 200, -10) if mhz != 890], 5) == 900
    assert next_clock({}, [], [900], 5) == 900
    points = {(0, Kind.FORWARD): [Point(900, 1.0, 100.0)]}
    assert next_clock(points, [900], [900], 5) is None


@pytest.mark.thorough
@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "a100-pcie-80gb", "h200"])
def test_the_clock_of_who_waits_anyway_is_measured(gpu: str) -> None:
    grid, points = model_named(gpu).clocks_mhz, swept(gpu, share=0.0)
    waiting_w = model_named(gpu).blocking_w[-1][1]
    for (stage, kind), own in points.items():
        work = WORKS[kind].times(WEIGHTS[stage])
        every = [true_point(gpu, mhz, work) for mhz in grid if mhz >= 0.5 * max(grid)]
        cheapest = min(every, key=lambda one: one.energy_j - waiting_w * one.time_s)
        assert cheapest.clock_mhz == own[-1].clock_mhz


def test_what_was_held_down_is_filed_under_the_clock_that_was_reached() -> None:
    points = [
        Point(1980, 1.0, 500.0, achieved_mhz=1700),
        Point(1800, 1.0, 499.0, achieved_mhz=1690),
        Point(1200, 1.4, 300.0, achieved_mhz=1200),
        Point(1500, 1.3, 320.0, achieved_mhz=1210),
    ]
    found = keyed_by_achieved_clock(points, range(2000, 500, -15))
    keyed = {one.clock_mhz: one.energy_j for one in found}
    assert list(keyed.items()) == [(1980, 500.0), (1685, 499.0), (1205, 320.0), (1200, 300.0)]


# What a sweep costs, and how it is diluted.

GRID = tuple(range(1410, 195, -15))


def test_two_clocks_by_hand() -> None:
    """Two iterations and one behind them; then 2 of twice the length, for which 25 must run in all.

    Five of these come after them: one, one before the highest clock's window of two, and one behind it.
    """
    found = cost_of([1.0, 2.0], window=WindowLength(2.0, 4.0, 2), most_slower_pct=8.0)
    assert found == SweepCost(duration_s=2.0 * (25 + 2), lost_s=4.0)
    assert found.slower_pct <= 8.0


@pytest.mark.parametrize(("least", "iteration_s", "minutes"), [(2, 2.0, 2.1), (1, 15.0, 7.3)])
def test_the_usual_sweep_is_short_and_slows_little(least: int, iteration_s: float, minutes: float) -> None:
    """Take work that slows down as its clock does, which is the most that it can."""
    slower = [1410 / mhz for mhz in clocks_held(GRID, 5)]
    found = cost_of(slower, window=WindowLength(iteration_s, 6.0, least), most_slower_pct=8.0)
    assert found.slower_pct <= 8.0
    assert found.duration_s <= 60.0 * minutes


def test_what_really_passed_is_counted() -> None:
    pace = SweepPace(8.0)
    for iteration_s in (2.0, 2.0, 2.6):
        pace.record_measured(iteration_s, resting=iteration_s == 2.0)
    assert pace.took_s == pytest.approx(6.6)
    assert pace.slower_pct(1.5) == pytest.approx(10.0), "not by the one that was seen before it"


def paced(resting_s: list[float], at_the_clock_s: float) -> SweepPace:
    """A window that was expected to last twice as long, after iterations at default clocks."""
    pace = SweepPace(8.0)
    pace.record_expected(len(resting_s))
    for iteration_s in resting_s:
        pace.record_measured(iteration_s, resting=True)
    pace.record_expected(2, 2.0)
    for _ in range(2):
        pace.record_measured(at_the_clock_s, resting=False)
    return pace


def test_what_was_lost_is_what_was_seen_where_that_is_less_and_sure() -> None:
    assert paced([2.0] * 6, 3.0).slowdown_lower_bound == pytest.approx(1.0)
    assert paced([2.0] * 6, 5.0).slowdown_lower_bound == 2.0, "no more than expected"
    assert paced([2.0] * 3, 3.0).slowdown_lower_bound == 2.0, "three iterations show nothing"
    needed = [paced([2.0] * 6, clock_s).baseline_iterations_needed(2, 1.5) for clock_s in (3.0, 4.0)]
    assert needed[0] < needed[1]
    varied = [1.8, 2.2, 1.9, 2.1, 2.0, 2.0]
    error = 2.0 * (sum((one - 2.0) ** 2 for one in varied) / 6 / 5) ** 0.5 / 2.0
    assert paced(varied, 3.0).slowdown_lower_bound == pytest.approx(1.0 + 8 * error)
    assert paced([1.0, 3.0] * 3, 3.0).slowdown_lower_bound == 2.0, "no proof of a smaller loss"


def test_how_long_iterations_will_last_is_expected_only_once_it_was_seen() -> None:
    assert SweepPace(8.0).slowdown_factor(2.0) == 1.0
    assert paced([2.0] * 3, 3.0).slowdown_factor(2.0) == 1.0, "three iterations show nothing"
    assert paced([2.0] * 6, 3.0).slowdown_factor(1.6) == pytest.approx(1.3), "half as much slower as expected"
    assert paced([2.0] * 6, 5.0).slowdown_factor(1.6) == pytest.approx(1.6), "at most"


# How temperature follows power, and what a degree costs: found again from what a simulated GPU shows.

KEY = (0, Kind.FORWARD)


def watched(gpu: SimulatedGpu, time: VirtualTime, clocks_mhz: list[int], *, each_s: float) -> ThermalHistory:
    """Let the GPU work at one clock after the other; read it as a watch does."""
    warmth, times_s, energies_j, readings = ThermalHistory(), [], [], []
    for clock_mhz in clocks_mhz:
        gpu.lock_clock(clock_mhz)
        until_s = time.now_s() + each_s
        while time.now_s() < until_s:
            task = gpu.begin(Work(0.25))
            gpu.release(task)
            gpu.wait(task)
            times_s.append(time.now_s())
            energies_j.append(gpu.energy_j())
            readings.append((time.now_s(), gpu.temperature_c() or 0.0))
        warmth.over(CounterTrace(times_s, energies_j), readings)
    return warmth


@pytest.mark.parametrize("model", ["a100-sxm4-80gb", "h100-sxm", "rtx-a4000"])
def test_the_law_of_heat_is_found_from_whole_degrees(model: str) -> None:
    time = VirtualTime()
    gpu = SimulatedGpu(SimulatedSettings(gpu=model, seed=3), time=time)
    top = gpu.model.max_clock_mhz
    clocks = [c for c in gpu.model.clocks_mhz if c >= top // 2][::6]
    thermal = watched(gpu, time, [*clocks, top], each_s=15.0).thermal()
    assert thermal.resistance_k_per_w == pytest.approx(gpu.model.thermal_k_per_w, rel=0.1)
    assert thermal.steady_state_c(200.0) == pytest.approx(
        gpu.model.ambient_c + 200.0 * gpu.model.thermal_k_per_w, abs=1.5
    )


def shown(time_s: np.ndarray, power_w: np.ndarray, read_c: np.ndarray) -> Thermal | None:
    warmth, trace = ThermalHistory(), CounterTrace(time_s.tolist(), np.cumsum(power_w * 0.25).tolist())
    warmth.over(trace, list(zip(time_s.tolist(), read_c.tolist(), strict=True)))
    return warmth.thermal()


def test_a_sensor_that_stands_still_or_runs_backwards_shows_nothing() -> None:
    time_s = np.arange(0.0, 100.0, 0.25)
    power_w = np.where(time_s < 50.0, 300.0, 150.0)
    for read_c in (np.full_like(time_s, 55.0), 60.0 - 0.05 * power_w + 0.01 * time_s):
        assert shown(time_s, power_w, read_c) is None


@pytest.mark.parametrize(("sticks_s", "believed"), [(np.inf, True), (100.0, False), (60.0, False)])
def test_a_sensor_that_sticks_in_the_middle_shows_nothing(sticks_s: float, *, believed: bool) -> None:
    time_s = np.arange(0.0, 200.0, 0.25)
    power_w = np.where(time_s % 50.0 < 25.0, 350.0, 200.0)
    true_c = [60.0]
    for watts in power_w[1:]:
        true_c.append(true_c[-1] + 0.25 / 40.0 * (30.0 + 0.085 * watts - true_c[-1]))
    read_c = np.round(true_c)
    read_c[time_s >= sticks_s] = read_c[time_s < sticks_s][-1]
    assert (shown(time_s, power_w, read_c) is not None) == believed


def test_a_counter_that_was_not_watched_for_a_while_begins_it_anew() -> None:
    warmth = ThermalHistory()
    warmth.over(CounterTrace([0.0, 1.0, 2.0], [0.0, 100.0, 200.0]), [(0.5, 50.0), (1.5, 51.0)])
    assert [row[1] for row in warmth.rows] == [0.0, 100.0]
    warmth.over(CounterTrace([2.0, 3.0], [200.0, 300.0]), [(2.5, 52.0)])
    assert [row[0] for row in warmth.rows] == [2.5]


def points(power_w: float, temperature_c: float | None, *, se_w: float = 0.1) -> dict[Computation, Point]:
    return {KEY: Point(1410, 2.0, 2.0 * power_w, energy_se_j=2.0 * se_w, temperature_c=temperature_c)}


def test_two_windows_of_one_clock_15_k_apart_agree_once_brought_to_one_temperature() -> None:
    """On a simulated GPU, warm and cold; the errors are the windows' own."""
    kappa = fit_power_per_kelvin(points(304.5, 65.0, se_w=0.5), points(300.0, 50.0, se_w=0.5))
    assert kappa is not None
    w_per_k, error = kappa
    assert w_per_k == pytest.approx(0.3, rel=0.02)
    assert error < 0.05
    assert 300.0 + 15.0 * w_per_k == pytest.approx(304.5, abs=2 * 0.5 * 2**0.5)


def test_an_unsure_pair_leaves_the_usual_and_a_contradiction_nothing() -> None:
    unsure = fit_power_per_kelvin(points(310.0, 51.0, se_w=50.0), points(300.0, 50.0, se_w=50.0))
    assert unsure == pytest.approx((0.001 * 310.0, 0.0005 * 310.0), rel=0.1)
    assert fit_power_per_kelvin(points(300.0, 65.0), points(310.0, 50.0)) is None
    assert fit_power_per_kelvin(points(330.0, 52.0), points(300.0, 50.0)) is None
    assert fit_power_per_kelvin(points(304.0, 65.0), points(300.0, None)) is None


def test_points_are_brought_to_where_default_clocks_settle() -> None:
    warm, cool = points(304.5, 65.0), points(300.0, 50.0)
    found = temperature_correction(warm, cool, thermal=Thermal(30.0, 0.1, 0.001), steady_state_c={KEY: 60.0})
    assert found.leakage == pytest.approx(0.1 * found.w_per_k)
    assert found.steady_state_c[KEY] == pytest.approx(50.0 + 10.0 / (1.0 - found.leakage))
    power_correction_w = found.power_correction_w(KEY, cool[KEY])
    assert power_correction_w == pytest.approx(found.w_per_k * (found.steady_state_c[KEY] - 50.0))
    assert found.blocking_w(cool) == pytest.approx(power_correction_w)
    assert temperature_correction(warm, cool, thermal=None, steady_state_c={KEY: 60.0}) is None
    assert temperature_correction(warm, cool, thermal=Thermal(30.0, 0.1, 0.001), steady_state_c={}) is None
