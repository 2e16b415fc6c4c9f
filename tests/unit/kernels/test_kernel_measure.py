"""Kernels measured as they truly are on a simulated GPU; their profiles and traces in files."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.device.simulated.physics import KernelWork, duration_s, energy_j, memory_saving_w
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, IncompleteProfileError, ProfileError
from perseus_ds.guard.open import NullGpu
from perseus_ds.kernels.measure import (
    MeasurementSettings,
    candidate_pairs,
    idle_power_reduction_w,
    measure,
    measure_kernels,
    memory_probe,
    simulated_runner,
)
from perseus_ds.kernels.profile import KERNEL_PROFILES, KernelPoint, KernelProfile, LeftOut, MeasuredKernel
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelClass, KernelTrace, LaunchSequence
from perseus_ds.schedule import Kind

PRODUCT = KernelClass("aten::mm", ((8192, 2048), (2048, 8192)), "bfloat16")
NORM = KernelClass("aten::native_layer_norm", ((8192, 2048),), "bfloat16")

LONG = KernelClass("aten::mm", ((32_768, 2048), (2048, 50_304)), "bfloat16")


def gpu_of(key: str = "rtx-3080-ti", *, noise: float = 0.0) -> SimulatedGpu:
    return SimulatedGpu(SimulatedSettings(gpu=key, noise=noise, counter_noise=noise / 2), time=VirtualTime())


def work_of(gpu: SimulatedGpu, kernel: KernelClass) -> KernelWork:
    return work_of_operator(gpu.model, kernel.name, kernel.shapes, kernel.dtype)


@pytest.mark.parametrize("kernel", [PRODUCT, NORM], ids=str)
@pytest.mark.parametrize(
    "pair", [DEFAULT_PAIR, ClockPair(5001, None), ClockPair(None, 1050), ClockPair(810, 630)]
)
def test_measured_as_it_truly_is(kernel: KernelClass, pair: ClockPair) -> None:
    gpu = gpu_of(noise=0.005)
    (point,) = measure(gpu, simulated_runner(gpu, kernel), [pair], MeasurementSettings())
    truth = gpu.model, pair.clock_mhz or 1890, work_of(gpu, kernel), pair.memory_mhz
    time_s = duration_s(*truth)
    assert point.time_s == pytest.approx(time_s, rel=0.005)
    # Truth is at the reference temperature; leakage moves power by up to 0.3 W a degree.
    assert point.energy_j == pytest.approx(energy_j(*truth), rel=0.04)
    assert 0 < point.time_se_s < 0.01 * time_s
    assert 0 < point.energy_se_j < 0.01 * energy_j(*truth)
    assert point.samples == 3


@pytest.mark.parametrize("declared_s", [0.1, 0.03, 0.25])
@pytest.mark.parametrize("kernel", [LONG, PRODUCT], ids=str)
def test_a_launch_may_last_as_long_as_a_step_of_the_counter(kernel: KernelClass, declared_s: float) -> None:
    """The counter steps every 100 ms, whatever its driver states."""
    gpu = gpu_of()
    able = replace(gpu.capabilities(), counter_period_s=declared_s)
    gpu.capabilities = lambda: able
    replay = simulated_runner(gpu, kernel)
    patience = MeasurementSettings(window_s=0.5, windows=2)
    for pair in (DEFAULT_PAIR, ClockPair(None, 1050)):
        (point,) = measure(gpu, replay, [pair], patience)
        warmer_k = gpu.true_now().temperature_c - gpu.model.reference_c
        truth = gpu.model, pair.clock_mhz or 1890, work_of(gpu, kernel)
        leaks_j = warmer_k * gpu.model.leakage_w_per_k * duration_s(*truth)
        assert point.energy_j == pytest.approx(energy_j(*truth) + leaks_j, rel=0.003)


def test_a_counter_that_stands_still_ends_the_measurement() -> None:
    gpu = gpu_of()
    gpu.energy_j = lambda: 1.0
    with pytest.raises(DeviceError, match="counter"):
        measure(gpu, simulated_runner(gpu, NORM), [DEFAULT_PAIR], MeasurementSettings())


def test_both_clocks_are_given_back_after_a_failure() -> None:
    gpu = gpu_of()
    run = simulated_runner(gpu, NORM)

    def broken(launches: int) -> None:
        if gpu.now_s() > 1.0:
            raise DeviceError("kernel")
        run(launches)

    with pytest.raises(DeviceError, match="kernel"):
        measure(gpu, broken, [ClockPair(5001, 1050)], MeasurementSettings())
    run(5000)
    assert (gpu.achieved().clock_mhz, gpu.true_now().memory_mhz) == (1890, 9501)


def test_pairs_are_those_of_the_memory_clocks_that_can_be_set() -> None:
    pairs = candidate_pairs(gpu_of().capabilities(), memory=True, core_clocks=3)
    assert pairs[0] == DEFAULT_PAIR
    assert len(pairs) == len(set(pairs)) == 5 * 4
    assert ClockPair(5001, None) in pairs
    assert {pair.clock_mhz for pair in pairs} == {None, 1890, 1230, 570}
    gpu = gpu_of("a100-sxm4-80gb")
    why_not = memory_probe(gpu)
    assert "1593 MHz" in str(why_not)
    assert {p.memory_mhz for p in candidate_pairs(gpu.capabilities(), memory=why_not is None)} == {None}


def test_a_device_without_a_counter_or_clocks_and_patience_that_cannot_measure_are_refused() -> None:
    with pytest.raises(DeviceUnsupportedError, match="counter"):
        measure(NullGpu(), simulated_runner(gpu_of(), NORM), [DEFAULT_PAIR], MeasurementSettings())
    with pytest.raises(DeviceUnsupportedError, match="core"):
        candidate_pairs(NullGpu().capabilities(), memory=False)
    for change in ({"windows": 1}, {"window_s": 0.0}):
        with pytest.raises(ProfileError):
            replace(MeasurementSettings(), **change)


def test_what_a_gpu_at_rest_spares_is_its_memorys_power() -> None:
    gpu = gpu_of()
    spared = dict(idle_power_reduction_w(gpu, MeasurementSettings()))
    assert set(spared) == set(gpu.model.memory_clocks_mhz[1:])
    for memory_mhz, watts in spared.items():
        assert watts == pytest.approx(memory_saving_w(gpu.model, memory_mhz), rel=0.1)
    gpu.sleep(1.0)
    assert gpu.true_now().memory_mhz == 9501
    assert idle_power_reduction_w(gpu_of("a100-sxm4-80gb"), MeasurementSettings()) == ()


def test_what_would_be_chosen_is_measured_a_second_time() -> None:
    gpu = gpu_of(noise=0.005)
    trace = KernelTrace((PRODUCT, NORM), (LaunchSequence(0, Kind.FORWARD, (0, 1, 0), times=4),))
    pairs = (DEFAULT_PAIR, ClockPair(None, 1050), ClockPair(810, 630))
    find, quick = partial(simulated_runner, gpu), MeasurementSettings(window_s=0.5, windows=2)
    done: list[float] = []
    profile = measure_kernels(gpu, trace, find, pairs=pairs, settings=quick, progress=done.append)
    assert 0.0 < done[0] < done[1] < done[2] == 1.0
    assert [one.kernel for one in profile.measured] == [PRODUCT, NORM]
    for one in profile.measured:
        assert {point.pair for point in one.first} == set(pairs)
        again = {point.pair: point for point in one.second}
        assert DEFAULT_PAIR in again
        for point in one.first:
            core_mhz, work = point.pair.clock_mhz or 1890, work_of(gpu, one.kernel)
            true_j = energy_j(gpu.model, core_mhz, work, point.pair.memory_mhz)
            assert point.energy_j == pytest.approx(true_j, rel=0.04), "leakage moves it by some watts"
            if point.pair in again:
                assert again[point.pair].energy_j == pytest.approx(point.energy_j, rel=0.04)


# Profiles and traces of kernels in files.

GEMM = KernelClass("gemm", ((8, 8), (8, 8)), "float16")


def test_a_profile_comes_back(tmp_path: Path) -> None:
    third = 1.0 / 3.0
    first = KernelPoint(DEFAULT_PAIR, third, 1e-3 * third), KernelPoint(ClockPair(5001, None), 1.0, 2.0)
    second = (KernelPoint(DEFAULT_PAIR, 1.0, 2.0, 0.1 * third, 0.2 * third, 7),)
    softmax = KernelClass("aten::_softmax", ((4, 16),), "bfloat16", "T;-1;False")
    profile = KernelProfile(
        (MeasuredKernel(GEMM, first, second), MeasuredKernel(softmax, second)),
        left_out=(LeftOut(KernelClass("odd"), "no such operator"),),
        why_not_memory="one memory clock only",
        fingerprint={"gpu": "A100"},
    )
    KERNEL_PROFILES.write(profile, tmp_path / "k.json")
    assert KERNEL_PROFILES.read(tmp_path / "k.json") == profile


def test_a_trace_comes_back(tmp_path: Path) -> None:
    trace = KernelTrace(
        (GEMM, KernelClass("gelu", ((8, 32),), "float16")),
        (
            LaunchSequence(0, Kind.FORWARD, (0, 1, 0), (1e-3, 1e-4, 1e-3), times=4),
            LaunchSequence(1, Kind.BACKWARD, (1,), deviating=2),
        ),
        overhead_pct=12.5,
        iterations=3,
        fingerprint={"model": "toy"},
    )
    KERNEL_TRACES.write(trace, tmp_path / "t.json")
    assert KERNEL_TRACES.read(tmp_path / "t.json") == trace
    assert trace.launches == 13


def test_a_profile_without_the_default_pair_or_with_anything_twice_is_refused() -> None:
    point = KernelPoint(DEFAULT_PAIR, 1.0, 1.0)
    with pytest.raises(IncompleteProfileError, match="default"):
        MeasuredKernel(GEMM, (KernelPoint(ClockPair(5001, None), 1.0, 1.0),))
    with pytest.raises(ProfileError, match="twice"):
        MeasuredKernel(GEMM, (point, point))
    with pytest.raises(ProfileError, match="twice"):
        KernelProfile((MeasuredKernel(GEMM, (point,)),) * 2)


def test_damage_is_named_by_its_key(tmp_path: Path) -> None:
    file = tmp_path / "k.json"
    KERNEL_PROFILES.write(
        KernelProfile((MeasuredKernel(GEMM, (KernelPoint(DEFAULT_PAIR, 1.0, 2.0),)),)), file
    )
    content = json.loads(file.read_text())
    del content["measured"][0]["first"][0]["energy_j"]
    file.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=r"k\.json: measured\.0\.first\.0\.energy_j"):
        KERNEL_PROFILES.read(file)


def test_a_trace_without_kernels_is_refused() -> None:
    with pytest.raises(ProfileError, match="forward"):
        LaunchSequence(3, Kind.FORWARD, ())
    with pytest.raises(ProfileError, match="kernels"):
        KernelTrace((), ())
    with pytest.raises(ProfileError, match="class"):
        KernelTrace((GEMM,), (LaunchSequence(0, Kind.FORWARD, (1,)),))
