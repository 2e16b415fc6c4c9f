"""How temperature follows power, and what a degree costs: found again from what a simulated GPU shows."""

import numpy as np
import pytest

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.profile import CounterTrace, Point
from perseus_ds.profile.temperature import (
    Thermal,
    ThermalHistory,
    fit_power_per_kelvin,
    temperature_correction,
)
from perseus_ds.schedule import Kind

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


def points(
    power_w: float, temperature_c: float | None, *, se_w: float = 0.1
) -> dict[tuple[int, Kind], Point]:
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
