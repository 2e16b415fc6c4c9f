"""Conflicts that a guard sees on its GPU, and its reaction."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_nvml import FakeNvml
from processes import eventually, set_clock

from perseus_ds.device.gpu import ConflictKind, DeviceRequest
from perseus_ds.errors import DeviceUnavailableError
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.open import choose

pytestmark = pytest.mark.e2e


@contextmanager
def held(node: FakeNvml, **numbers: int) -> Iterator[GuardedGpu]:
    """The first GPU in a state, with a clock of ours."""
    for name, value in numbers.items():
        setattr(node.state.gpu[0], name, value)
    with choose(DeviceRequest("nvml")).gpu as gpu:
        set_clock(gpu, 900)
        yield gpu


@pytest.fixture
def gpu(node: FakeNvml) -> Iterator[GuardedGpu]:
    with held(node) as gpu:
        yield gpu


def said(gpu: GuardedGpu, words: str) -> bool:
    return any(words in seen.line for seen in gpu.conflicts())


def kinds(gpu: GuardedGpu) -> list[ConflictKind]:
    return [one.kind for one in gpu.conflicts()]


def test_a_throttled_gpu_is_said_and_control_goes_on(node: FakeNvml, gpu: GuardedGpu) -> None:
    node.state.gpu[0].reasons, node.state.gpu[0].forgets = 0x4, 1
    node.state.gpu[0].clamp_mhz, node.state.gpu[0].utilization = 750, 90
    assert eventually(lambda: said(gpu, "power cap"))
    set_clock(gpu, 705)
    assert node.locked_mhz() == [705, 0]


def test_a_foreign_clock_is_said_and_control_given_up(node: FakeNvml, gpu: GuardedGpu) -> None:
    node.state.gpu[0].locked_mhz = 1200
    assert eventually(lambda: said(gpu, "somebody else"))
    assert eventually(lambda: node.locked_mhz() == [0, 0])
    with pytest.raises(DeviceUnavailableError, match="somebody else"):
        set_clock(gpu, 900)


def test_a_changed_power_profile_is_said_once_for_every_change(node: FakeNvml) -> None:
    with held(node, power_profile=3) as gpu:
        node.state.gpu[0].power_profile = 5
        assert eventually(lambda: said(gpu, "5 now"))
        time.sleep(1.3)  # a look more
        node.state.gpu[0].power_profile = 70
        assert eventually(lambda: said(gpu, "70 now"))
        [seen] = gpu.conflicts()
        assert (seen.kind, seen.count) == (ConflictKind.SETTING_CHANGED, 2)
        set_clock(gpu, 705)
        assert node.locked_mhz() == [705, 0]


def test_a_lock_that_was_there_before_the_job_is_reported_and_reset(node: FakeNvml) -> None:
    node.state.gpu[0].locked_mhz, node.state.gpu[0].utilization = 720, 60
    with choose(DeviceRequest("nvml")).gpu as gpu:
        assert eventually(lambda: ConflictKind.PREEXISTING_LOCK in kinds(gpu))
        assert said(gpu, "720 MHz")
        assert node.locked_mhz() == [0, 0]
    assert node.locked_mhz() == [0, 0]


def test_neither_a_clamp_nor_an_idle_phase_without_a_reason_is_somebody_else(node: FakeNvml) -> None:
    """The lock was reached, then full load came and went: control was once given up for either."""
    state = node.state.gpu[0]
    state.clamp_mhz, state.idle_mhz = 1200, 210
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.expect(call_s=0.0, latency_s=0.03, held_mhz=1200)
        state.utilization = 90
        gpu.lock_clock(1395)
        assert eventually(lambda: said(gpu, "never reached"))
        set_clock(gpu, 1005)
        state.utilization = 0
        time.sleep(3.0)
        assert gpu.given_up() is None
        state.utilization = 90
        state.locked_mhz = 510
        assert eventually(lambda: gpu.given_up() is not None), "a held clock that is lower now was changed"
