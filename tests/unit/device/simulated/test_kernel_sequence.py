"""An instruction made of kernels on a simulated GPU: as long and as dear as its kernels, clock by clock."""

import pytest

from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, VirtualTime
from perseus_ds.device.simulated.physics import KernelSequence, KernelWork, duration_s, energy_j
from perseus_ds.device.simulated.settings import SimulatedSettings

PRODUCT, NORM = KernelWork(0.004, 0.001), KernelWork(0.001, 0.004)
LAUNCHES = (PRODUCT, NORM, NORM, PRODUCT) * 5
LOW, LOW_MEMORY = 1200, 5001


@pytest.fixture
def gpu() -> SimulatedGpu:
    settings = SimulatedSettings(gpu="rtx-3080-ti", noise=0.0, switch_latency_s=0.0)
    return SimulatedGpu(settings, time=VirtualTime())


def run(gpu: SimulatedGpu, work: KernelSequence | KernelWork) -> Task:
    task = gpu.begin(work)
    gpu.release(task)
    gpu.wait(task)
    return task


def lasted_s(task: Task) -> float:
    assert task.ended_s is not None
    return task.ended_s - task.started_s


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
