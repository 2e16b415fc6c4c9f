"""A GPU under several engines: opened once, its clock one at a time, closed after the last."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from lone_job import NotingGpu

import perseus_ds.runtime.shared_device as module
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceLostError, DeviceUnavailableError
from perseus_ds.guard.open import Choice
from perseus_ds.runtime.clocks import Ask
from perseus_ds.runtime.shared_device import SharedDevice, address_of, shared_device

REQUEST = DeviceRequest("simulated", simulated=SimulatedSettings(switch_latency_s=0.0))
OTHER = replace(REQUEST, local_rank=1)


def shared(gpu: NotingGpu, **limits: float) -> SharedDevice:
    return SharedDevice(REQUEST, Choice(gpu, "noting", "a test"), **limits).use()


def test_the_same_request_gets_the_same_device_until_the_last_has_left() -> None:
    first, second, other = shared_device(REQUEST), shared_device(REQUEST), shared_device(OTHER)
    assert first is second
    assert first is not other
    first.release()
    assert shared_device(REQUEST) is first
    for _ in range(2):
        first.release()
    fresh = shared_device(REQUEST)
    assert fresh is not first
    for device in (fresh, other):
        device.release()


def test_a_turn_is_taken_when_somebody_else_had_it() -> None:
    device = shared_device(REQUEST)
    assert [device.take(who) for who in ("a", "a", "b", "b", "a")] == [False, False, True, False, True]
    device.release()


def test_who_leaves_gives_the_clock_back_and_the_other_asks_anew() -> None:
    device = shared_device(REQUEST)
    shared_device(REQUEST)
    gpu = device.choice.gpu
    device.take("a")
    device.requests().put((Ask(1200),), gpu.now_s())
    gpu.sleep(0.1)
    assert gpu.true_now().clock_mhz == 1200
    device.release()
    gpu.sleep(0.1)
    assert gpu.true_now().clock_mhz == gpu.model.max_clock_mhz
    assert device.take("b")
    device.release()


def test_a_driver_that_hangs_holds_up_the_end_and_not_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, answers = NotingGpu(), threading.Event()
    close = gpu.close
    monkeypatch.setattr(gpu, "close", lambda: answers.wait(60.0) and close())
    device = shared(gpu, patience_s=0.01)
    with pytest.raises(DeviceUnavailableError, match="not answer"):
        device.release()
    assert gpu.asked == []
    answers.set()
    module._finish_all()
    assert gpu.asked == [None]


def test_closing_begins_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on none can begin while the interpreter exits."""
    device = shared(gpu := NotingGpu())
    device.requests()
    error = RuntimeError("can't create new thread at interpreter shutdown")
    monkeypatch.setattr(threading.Thread, "start", MagicMock(side_effect=error))
    device.release()
    assert gpu.asked == [None]


def test_a_driver_that_is_silent_at_the_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that arrives after the end is closed."""
    answers, closed, gpu = threading.Event(), threading.Event(), NotingGpu()

    def hangs(_: DeviceRequest) -> Choice:
        assert answers.wait(60.0)
        return Choice(gpu, "noting", "a test")

    monkeypatch.setattr(module, "choose", hangs)
    monkeypatch.setattr(gpu, "close", closed.set)
    with pytest.raises(DeviceUnavailableError, match=r"0\.01 s"):
        shared_device(DeviceRequest("nvml", local_rank=7), patience_s=0.01)
    assert not closed.is_set()
    answers.set()
    assert closed.wait(60.0)


def test_what_fails_at_the_start_or_the_end_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = NotingGpu()
    gpu.fails = DeviceLostError("gone")
    with pytest.raises(DeviceLostError, match="gone"):
        shared(gpu).release()
    monkeypatch.setattr(module, "choose", MagicMock(side_effect=DeviceLostError("gone")))
    with pytest.raises(DeviceLostError, match="gone"):
        shared_device(DeviceRequest("nvml", local_rank=7))


# Which device of the vendor's library is torch's.

PCI = {"pci_domain_id": 1, "pci_bus_id": 0xC1, "pci_device_id": 0}


@pytest.mark.parametrize(
    ("numbers", "hip", "address"),
    [(PCI, False, ("GPU-ab", None)), (PCI, True, (None, "0001:c1:00.0")), ({}, True, ("GPU-ab", None))],
)
def test_on_hip_a_device_is_found_by_its_bus(
    numbers: dict[str, int], *, hip: bool, address: tuple[str | None, str | None]
) -> None:
    assert address_of(SimpleNamespace(uuid="ab", **numbers), hip=hip) == address
