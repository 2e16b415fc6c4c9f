"""A simulated GPU in virtual time: clock switches, work and energy against sums done by hand; kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.gpu import EventReason
from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, VirtualTime
from perseus_ds.device.simulated.models import MODELS, model_named
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.device.simulated.physics import (
    KernelSequence,
    KernelWork,
    Work,
    duration_s,
    energy_j,
    held_mhz,
)
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceUnsupportedError

WORK = Work(0.4, memory_bound=0.0)
LATENCY_S = 0.037


def gpu_of(key: str, time: VirtualTime | None = None, **settings: float) -> SimulatedGpu:
    known = {"gpu": key, "noise": 0.0, "counter_noise": 0.0, **settings}
    return SimulatedGpu(SimulatedSettings(**known), time=time or VirtualTime())


def a100(time: VirtualTime, **settings: float) -> SimulatedGpu:
    return gpu_of("a100-sxm4-80gb", time, **settings)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(1000.0)


def run(gpu: SimulatedGpu, work: Work | KernelSequence | KernelWork = WORK) -> Task:
    task = gpu.begin(work)
    gpu.release(task)
    gpu.wait(task)
    assert task.ended_s == pytest.approx(gpu.now_s(), rel=1e-9), "forecast and outcome agree"
    return task


def lasted_s(task: Task) -> float:
    return task.ended_s - task.started_s


def test_the_old_clock_runs_on_through_call_and_settle_and_calls_queue(time: VirtualTime) -> None:
    gpu = a100(time)
    gpu.lock_clock(705)
    gpu.lock_clock(900)
    for pass_s, clock_mhz in ((LATENCY_S - 0.001, 1410), (0.0015, 705), (0.010, 900)):
        time.pass_s(pass_s)
        assert gpu.achieved().clock_mhz == clock_mhz


def test_a_clock_that_changes_under_way_slows_the_rest_and_asking_again_is_free(time: VirtualTime) -> None:
    gpu = a100(time)
    gpu.lock_clock(705)
    task = run(gpu)
    assert lasted_s(task) == pytest.approx(LATENCY_S + (0.4 - LATENCY_S) * 2)
    gpu = a100(time)
    for pass_s in (0.02, 0.018):
        gpu.lock_clock(705)
        time.pass_s(pass_s)
    assert gpu.achieved().clock_mhz == 705


def test_a_slow_handler_keeps_the_gpu_busy_and_is_counted(time: VirtualTime) -> None:
    gpu = a100(time)
    task = gpu.begin(WORK)
    time.pass_s(0.6)
    gpu.release(task)
    gpu.wait(task)
    assert task.ended_s - task.finished_s == pytest.approx(0.2)
    assert (gpu.truth.overruns, gpu.truth.count) == (1, 1)
    assert gpu.true_now().busy_s == pytest.approx(0.6)


def test_energy_is_power_times_time_through_every_phase(time: VirtualTime) -> None:
    gpu = a100(time)
    assert run(gpu).energy_j == pytest.approx(physics.energy_j(gpu.model, 1410, WORK), rel=0.01)
    busy_j = gpu.true_now().energy_j
    time.pass_s(1.0)
    assert gpu.true_now().energy_j - busy_j == pytest.approx(85.4, rel=0.02)


def test_the_counter_follows_the_truth_late_and_stands_still_between_ticks(time: VirtualTime) -> None:
    gpu = a100(time)
    for _ in range(50):
        run(gpu)
    true_j = gpu.true_now().energy_j
    assert gpu.energy_j() <= true_j
    assert gpu.energy_j() == pytest.approx(true_j, rel=0.02)
    seen = set()
    for _ in range(1000):
        time.pass_s(0.001)
        seen.add(gpu.energy_j())
    assert 10 <= len(seen) <= 12


def test_noise_is_seeded(time: VirtualTime) -> None:
    def durations(seed: int) -> list[float]:
        gpu = a100(VirtualTime(), seed=seed, noise=0.01)
        return [lasted_s(run(gpu)) for _ in range(5)]

    assert durations(1) == durations(1)
    assert durations(1) != durations(2)


def test_a_throttled_or_capped_device_says_why(time: VirtualTime) -> None:
    gpu = a100(time, throttle_mhz=900)
    assert (gpu.achieved().clock_mhz, gpu.achieved().event_reasons) == (900, EventReason.SW_THERMAL)
    gpu.throttle(None)
    assert gpu.achieved().clock_mhz == 1410
    gpu = a100(time)
    gpu.begin(Work(1.0, intensity=1.0))
    time.pass_s(0.5)
    assert gpu.achieved().event_reasons is EventReason.SW_POWER_CAP
    assert gpu.achieved().clock_mhz < 1410
    assert gpu.true_now().power_w == pytest.approx(400.0, rel=0.02)


def test_what_ran_before_a_throttle_ran_at_the_clock_before(time: VirtualTime) -> None:
    gpu, work = a100(time), Work(1.0, intensity=0.5)
    full_s, slow_s = (physics.duration_s(gpu.model, mhz, work) for mhz in (1410, 705))
    task = gpu.begin(work)
    gpu.release(task)
    time.pass_s(full_s / 2)
    gpu.throttle(705)
    gpu.wait(task)
    assert lasted_s(task) == pytest.approx((full_s + slow_s) / 2, rel=1e-6)


@given(
    st.lists(st.tuples(st.sampled_from((210, 705, 900, 1200, 1410)), st.floats(0.0, 0.3)), max_size=20),
    st.floats(0.01, 2.0),
)
def test_whatever_the_switches_work_is_conserved(switches: list[tuple[int, float]], seconds: float) -> None:
    time = VirtualTime(5e7)  # the host's clock over a small scale: coarse floats
    gpu = a100(time)
    task = gpu.begin(Work(seconds, memory_bound=0.1))
    for clock_mhz, pause_s in switches:
        gpu.lock_clock(clock_mhz)
        time.pass_s(pause_s)
    gpu.release(task)
    gpu.wait(task)
    lasted_s = task.finished_s - task.started_s
    slowest = Work(1.0, memory_bound=0.1).rate(gpu.model, 210, 1593)
    assert seconds - 1e-6 <= lasted_s <= seconds / slowest + 1e-6


# Kernels: bound by cores or memory, and instructions made of them, clock by clock.

RTX = model_named("rtx-3080-ti")
TOP, MEMORY = RTX.max_clock_mhz, RTX.memory_clocks_mhz[0]
works = st.builds(
    KernelWork, st.floats(1e-6, 1.0), st.floats(1e-6, 1.0), st.floats(0.1, 1.0), st.sampled_from([1.0, 6.0])
)


@given(work=works, clock=st.sampled_from(RTX.clocks_mhz), memory=st.sampled_from(RTX.memory_clocks_mhz))
def test_no_clock_makes_a_kernel_faster_than_its_roofs(work: KernelWork, clock: int, memory: int) -> None:
    seconds = work.seconds / work.rate(RTX, clock, memory)
    core_s, memory_s = work.core_s * TOP / clock, work.memory_s * MEMORY / memory
    assert max(core_s, memory_s) * (1 - 1e-12) <= seconds <= (core_s + memory_s) * (1 + 1e-12)


@pytest.mark.parametrize("key", MODELS)
def test_held_clocks_keep_the_cap_and_lower_clocks_draw_less(key: str) -> None:
    model, work = model_named(key), KernelWork(1.0, 0.3, 1.0)
    slower = model.clocks_mhz[::10]
    powers = [energy_j(model, clock, work) / duration_s(model, clock, work) for clock in slower]
    assert max(powers) <= model.power_cap_w * 1.001
    assert powers == sorted(powers, reverse=True)


def test_a_lower_memory_clock_gives_a_capped_product_its_speed_back() -> None:
    product = KernelWork(1.0, 0.15, 1.0)
    assert held_mhz(RTX, TOP, MEMORY, product, RTX.power_cap_w) < TOP
    assert duration_s(RTX, TOP, product, 5001) < duration_s(RTX, TOP, product)
    assert energy_j(RTX, TOP, product, 5001) < 0.9 * energy_j(RTX, TOP, product)


def test_memory_bound_kernels_want_slow_cores_and_products_do_not() -> None:
    works = KernelWork(0.3, 1.0), KernelWork(1.0, 0.1)
    bound, product = (duration_s(RTX, 1050, work) / duration_s(RTX, TOP, work) for work in works)
    assert bound < 1.02
    assert product > 1.6


def test_larger_shapes_take_longer_and_products_are_bound_by_the_cores() -> None:
    small, large = (work_of_operator(RTX, "aten::mm", ((n, n), (n, n)), "bfloat16") for n in (1024, 4096))
    assert large.seconds > 30 * small.seconds
    assert large.core_s > 2 * large.memory_s
    gelu = work_of_operator(RTX, "aten::gelu", ((4096, 4096),), "bfloat16")
    assert gelu.memory_s > 2 * gelu.core_s


@pytest.mark.parametrize("name", ["aten::mm", "aten::copy_"])
@pytest.mark.parametrize("shapes", [(), ((0, 4), (4, 4)), ((1,),)])
def test_a_kernel_of_nothing_still_takes_its_launch(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    work = work_of_operator(RTX, name, shapes, "float32")
    assert work.seconds >= 1e-6
    assert duration_s(RTX, TOP, work) > 0
    assert energy_j(RTX, TOP, work) > 0


def test_a_memory_clock_is_in_force_after_its_latency() -> None:
    device, work = gpu_of("rtx-3080-ti"), KernelWork(1e-4, 0.01)
    assert device.capabilities().memory_why_not is None
    device.lock_memory_clock(5001)
    latency_s = device.capabilities().switch_latency_s
    fast_s = lasted_s(run(device, work))
    assert fast_s < latency_s
    while device.now_s() < 2 * latency_s:
        run(device, work)
    assert lasted_s(run(device, work)) == pytest.approx(fast_s * 9501 / 5001, rel=1e-3)
    assert device.true_now().memory_mhz == 5001
    device.reset_memory_clock()
    run(device, work.times(20))
    assert device.true_now().memory_mhz == 9501


def test_a_switch_of_both_clocks_within_a_kernel_is_foreseen() -> None:
    device = gpu_of("rtx-3080-ti")
    device.lock_clock(1050)
    device.lock_memory_clock(810)
    run(device, KernelWork(0.2, 0.15))


def test_a_device_with_one_memory_clock_refuses() -> None:
    device = gpu_of("a100-sxm4-80gb")
    assert device.capabilities().memory_why_not is not None
    with pytest.raises(DeviceUnsupportedError, match="1593 MHz"):
        device.lock_memory_clock(1593)
    with pytest.raises(DeviceUnsupportedError, match="9501"):
        gpu_of("rtx-3080-ti").lock_memory_clock(7000)


# An instruction made of kernels: as long and as dear as they are.

PRODUCT, NORM = KernelWork(0.004, 0.001), KernelWork(0.001, 0.004)
LAUNCHES = (PRODUCT, NORM, NORM, PRODUCT) * 5
LOW, LOW_MEMORY = 1200, 5001


@pytest.fixture
def gpu() -> SimulatedGpu:
    return gpu_of("rtx-3080-ti", switch_latency_s=0.0)


@pytest.mark.parametrize(("clock_mhz", "memory_mhz"), [(1890, 9501), (LOW, 9501), (LOW, LOW_MEMORY)])
def test_a_sequence_takes_what_its_kernels_take(gpu: SimulatedGpu, clock_mhz: int, memory_mhz: int) -> None:
    gpu.lock_clock(clock_mhz)
    gpu.lock_memory_clock(memory_mhz)
    gpu.sleep(0.1)
    clocks = gpu.model, clock_mhz
    task = run(gpu, KernelSequence(LAUNCHES))
    assert lasted_s(task) == pytest.approx(sum(duration_s(*clocks, one, memory_mhz) for one in LAUNCHES))
    spent_j = sum(energy_j(*clocks, one, memory_mhz) for one in LAUNCHES)
    assert task.energy_j == pytest.approx(spent_j, rel=0.05), "but for its heat"


def test_a_change_inside_slows_what_follows_it_alone(gpu: SimulatedGpu) -> None:
    clock = gpu.virtual_time
    fast_s, slow_s = (duration_s(gpu.model, mhz, PRODUCT) for mhz in (gpu.model.max_clock_mhz, LOW))
    clock.at(clock.now_s() + fast_s, lambda: gpu.lock_clock(LOW))
    found_s = lasted_s(run(gpu, KernelSequence((PRODUCT, NORM, NORM, PRODUCT))))
    assert found_s == pytest.approx(fast_s + 2 * duration_s(gpu.model, LOW, NORM) + slow_s)


def test_a_factor_stretches_every_kernel_alike_and_one_alone_is_a_sequence_of_one(gpu: SimulatedGpu) -> None:
    sequence = KernelSequence(LAUNCHES)
    assert lasted_s(run(gpu, sequence.times(1.5))) == pytest.approx(1.5 * lasted_s(run(gpu, sequence)))
    assert lasted_s(run(gpu, KernelSequence((NORM,)))) == pytest.approx(lasted_s(run(gpu, NORM)))
