"""Core and memory clock of one device: what is new is asked for, and both are given back."""

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.runtime.clock_sequencer import ClockSequencer
from perseus_ds.runtime.clock_thread import Ask, ClockThread

LATENCY_S = 0.01


def opened(gpu: str) -> tuple[SimulatedGpu, VirtualTime, ClockThread]:
    clock = VirtualTime()
    device = SimulatedGpu(SimulatedSettings(gpu=gpu, switch_latency_s=LATENCY_S), time=clock)
    return device, clock, ClockThread(device, clock)


def in_force(gpu: SimulatedGpu, clock: VirtualTime) -> tuple[int, int]:
    clock.pass_s(3 * LATENCY_S)
    return gpu.achieved().clock_mhz, gpu.true_now().memory_mhz


def test_both_clocks_are_set_and_given_back() -> None:
    gpu, clock, requests = opened("rtx-3080-ti")
    default = in_force(gpu, clock)
    sequencer = ClockSequencer(requests, gpu.now_s, moment=lambda: None)
    sequencer.request((Ask(1200, memory_mhz=5001),))
    assert in_force(gpu, clock) == (1200, 5001)
    sequencer.request((Ask(1200, 0.5),))
    assert in_force(gpu, clock) == (1200, 5001)
    clock.pass_s(0.5)
    assert in_force(gpu, clock) == (1200, default[1]), "the memory's own clock, after the delay"
    sequencer.request((Ask(1200, memory_mhz=810),))
    assert requests.counts.changes == 3
    requests.close()
    assert in_force(gpu, clock) == default


def test_a_memory_clock_that_cannot_be_set_is_kept_as_the_error() -> None:
    gpu, clock, requests = opened("a100-sxm4-80gb")
    requests.put((Ask(1200, memory_mhz=810),), clock.now_s())
    clock.pass_s(1.0)
    assert isinstance(requests.error, DeviceUnsupportedError)
    assert "memory clock" in str(requests.error)
    assert gpu.achieved().clock_mhz == 1200
