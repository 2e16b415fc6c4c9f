"""Speed, power and heat against the facts they were taken from; its block."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from golden import DATA

from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.models import MODELS, GpuModel, interpolate, model_named
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings, simulated_settings
from perseus_ds.errors import ConfigError

A100 = model_named("a100-sxm4-80gb")
MEASURED = json.loads(Path(__file__).with_name("measured.json").read_text())
PROFILE = DATA / "gpt3-175b_a100-sxm_profile.csv"


def watts(model: GpuModel, clock_mhz: float, intensity: float) -> float:
    return Work(1.0, intensity=intensity).power_w(model, clock_mhz, model.memory_clocks_mhz[0])


def held_mhz(model: GpuModel, clock_mhz: int, intensity: float, cap_w: float = 400.0) -> float:
    work = Work(1.0, intensity=intensity)
    return physics.held_mhz(model, clock_mhz, model.memory_clocks_mhz[0], work, cap_w)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_number_has_its_source_power_grows_and_duration_falls_with_the_clock(model: GpuModel) -> None:
    sheet = json.loads(Path(physics.__file__).with_name("models.json").read_text())[model.key]
    assert set(sheet) - {"about", "like", "name", "sources", "sources_as"} <= set(sheet["sources"])
    work, slow_to_fast = Work(1.0), model.clocks_mhz[::-1]
    powers_w = [watts(model, clock_mhz, work.intensity) for clock_mhz in slow_to_fast]
    durations_s = [physics.duration_s(model, clock_mhz, work) for clock_mhz in slow_to_fast]
    assert powers_w == sorted(powers_w)
    assert durations_s == sorted(durations_s, reverse=True)


def test_a_gemm_takes_as_many_cycles_at_every_clock_and_blocking_power_is_the_one_measured() -> None:
    cycles = [c * physics.duration_s(A100, c, Work(1.0, 0.0, 0.5)) for c in A100.clocks_mhz]
    assert max(cycles) / min(cycles) < 1.001
    measured_w = {300: 56.4, 510: 57.6, 705: 59.4, 900: 61.4, 1200: 69.7, 1410: 85.4}
    assert {mhz: watts(A100, mhz, 0.0) for mhz in measured_w} == pytest.approx(measured_w)


def test_the_densest_kernels_do_not_hold_the_top_clock_under_the_cap_and_usual_ones_do() -> None:
    held = held_mhz(A100, 1410, 1.0)
    assert 1320 < held < 1400
    assert watts(A100, held, 1.0) == pytest.approx(A100.power_cap_w, abs=0.1)
    assert held < held_mhz(replace(A100, dynamic_w=10.0), 1410, 1.0), "models with one key share no cache"
    assert held_mhz(A100, 1410, Work(1.0).intensity) == 1410


@pytest.mark.skipif(
    not PROFILE.exists(),
    reason=f"the published {PROFILE.name} is not in {DATA}: docs/solver.md says where to get it",
)
@pytest.mark.parametrize(("kind", "memory_bound"), [("forward", 0.065), ("backward", 0.12)])
def test_the_a100_curves_are_those_of_the_published_profile(kind: str, memory_bound: float) -> None:
    with PROFILE.open() as file:
        rows = [row for row in csv.DictReader(file) if row["stage"] == "3" and row["instruction"] == kind]
    work = Work(1.0, memory_bound, intensity=1.0)
    top = next(row for row in rows if row["frequency"] == "1410")
    for row in rows:
        clock_mhz = int(row["frequency"])
        slower = physics.duration_s(A100, clock_mhz, work) / physics.duration_s(A100, 1410, work)
        dearer = physics.energy_j(A100, clock_mhz, work) / physics.energy_j(A100, 1410, work)
        assert slower == pytest.approx(float(row["time"]) / float(top["time"]), rel=0.015)
        assert dearer == pytest.approx(float(row["energy"]) / float(top["energy"]), rel=0.035)


@pytest.mark.parametrize("key", MEASURED)
def test_a_model_draws_what_a_real_gpu_drew(key: str) -> None:
    model, measured = model_named(key), MEASURED[key]
    assert len(measured["power_w"]) > 3
    for clock, drawn_w in measured["power_w"].items():
        held = held_mhz(model, int(clock), 1.0, measured["cap_w"])
        assert watts(model, held, 1.0) == pytest.approx(drawn_w, rel=0.05), clock
        reached_mhz = measured.get("reached_mhz", {}).get(clock, held)
        assert held == pytest.approx(reached_mhz, rel=0.05)


def test_heat_in_two_halves_is_heat_in_one_and_a_warm_chip_leaks_more() -> None:
    whole_j, whole_c = physics.drift(A100, 350.0, 45.0, 20.0)
    first_j, middle_c = physics.drift(A100, 350.0, 45.0, 7.0)
    second_j, end_c = physics.drift(A100, 350.0, middle_c, 13.0)
    assert (first_j + second_j, end_c) == pytest.approx((whole_j, whole_c))
    cold_j, warm_j = (physics.drift(A100, 300.0, from_c, 1.0)[0] for from_c in (40.0, 80.0))
    assert warm_j - cold_j == pytest.approx(40.0 * A100.leakage_w_per_k, rel=0.05)


def test_interpolation_is_flat_beyond_the_ends() -> None:
    table = ((1.0, 10.0), (3.0, 30.0))
    assert [interpolate(table, x) for x in (0.0, 1.0, 2.0, 3.0, 9.0)] == [10.0, 10.0, 20.0, 30.0, 30.0]


# The simulated block: what is refused, and how it is said.


def test_an_empty_block_is_the_default_and_a_rank_has_what_is_its_own() -> None:
    assert simulated_settings({}) == SimulatedSettings()
    assert simulated_settings({"forward_s": [0.1, 0.2]}).forward_s == (0.1, 0.2)
    block = {"noise": 0.01, "ranks": {"3": {"gpu": "a40", "forward_s": [0.5]}}}
    assert simulated_settings(block) == SimulatedSettings(noise=0.01)
    assert simulated_settings(block, rank=3) == SimulatedSettings(gpu="a40", noise=0.01, forward_s=(0.5,))


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"gpus": "a40"}, "simulated.gpus: unknown"),
        ({"gpu": "v100"}, "a100-sxm4-80gb"),
        ({"gpu": 3}, "simulated.gpu: got 3"),
        ({"time_scale": 0}, "simulated.time_scale"),
        ({"time_scale": "fast"}, "'fast'"),
        ({"noise": True}, "simulated.noise"),
        ({"noise": float("nan")}, "nan"),
        ({"memory_bound": 1.5}, "equal to 1"),
        ({"forward_s": [0.1, -1]}, "simulated.forward_s[1]"),
        ({"forward_s": 0.4}, "a list"),
        ({"seed": 1.5}, "simulated.seed"),
        ({"load_terms": [0.1, 0.9]}, "simulated.load_terms"),
        ({"load_terms": [0.1, 0.9, -0.1], "mean_load": [1, 1]}, "simulated.load_terms[2]"),
        ({"load_terms": [0.1, 0.6, 0.3]}, "belong together"),
        ({"load_terms": [0.1, 0.6, 0.3], "mean_load": [0, 1]}, "simulated.mean_load[0]"),
        ({"power_cap_w": -5}, "simulated.power_cap_w"),
        ({"ranks": [1]}, "simulated.ranks"),
        ({"ranks": {"one": {"gpu": "a40"}}}, "simulated.ranks.one"),
        ({"ranks": {"1": "a40"}}, "simulated.ranks.1"),
        ({"ranks": {"1": {"gpus": "a40"}}}, "simulated.ranks.1.gpus"),
        ({"ranks": {"1": {"time": "scaled"}}}, "simulated.ranks.1.time"),
        ({"ranks": {"7": {"noise": 7}}}, "simulated.noise"),
    ],
)
def test_a_bad_value_is_named_with_its_key(block: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        simulated_settings(block)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("time_scale", [1e-9, 1e9], [0, -1]),
        ("noise", [0, 1], [-1e-9, 1.0001]),
        ("intensity", [1e-9, 2], [0, 2.0001]),
        ("switch_latency_s", [None, 0], [-1e-9]),
        ("power_cap_w", [None, 1e-9], [0]),
        ("throttle_mhz", [None, 210], [0, 209]),
    ],
)
def test_a_number_of_each_kind_has_its_range(key: str, inside: list[object], outside: list[object]) -> None:
    for value in inside:
        assert getattr(simulated_settings({key: value}), key) == value
    for value in outside:
        with pytest.raises(ConfigError, match=f"simulated.{key}: got"):
            simulated_settings({key: value})


def test_whoever_closes_a_gpu_leaves_both_clocks_at_their_highest() -> None:
    gpu = SimulatedGpu(simulated_settings({"gpu": "a40", "switch_latency_s": 0.0}), 0)
    gpu.lock_clock(gpu.capabilities().clocks_mhz[-1])
    gpu.lock_memory_clock(405)
    gpu.sleep(1.0)
    assert gpu.true_now().memory_mhz == 405
    gpu.close()
    gpu.sleep(1.0)
    assert gpu.true_now().memory_mhz == 7251
    assert gpu.achieved().clock_mhz == gpu.capabilities().default_clock_mhz
