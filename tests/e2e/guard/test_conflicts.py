"""What a guard sees of others at work on its GPU, and what it does about it."""

import time
from collections.abc import Callable, Iterator

import pytest
from fake_nvml import FakeNvml

from perseus_ds.device import ConflictKind, DeviceRequest, choose
from perseus_ds.device.guard import GuardedGpu, Outcome, repair
from perseus_ds.errors import DeviceLostError, DeviceUnavailableError

pytestmark = pytest.mark.e2e


def eventually(true: Callable[[], bool], limit_s: float = 20.0) -> bool:
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        if true():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def gpu(node: FakeNvml) -> Iterator[GuardedGpu]:
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.lock_clock(900)
        assert eventually(lambda: gpu._client.sync()["settle_s"] is not None)
        yield gpu


def said(gpu: GuardedGpu, words: str) -> bool:
    return any(words in seen.line for seen in gpu.conflicts())


def locked(gpu: GuardedGpu, clock_mhz: int) -> None:
    gpu.lock_clock(clock_mhz)
    gpu.sync()  # the refusal may cross the request


def test_a_throttled_gpu_is_said_and_control_goes_on(node: FakeNvml, gpu: GuardedGpu) -> None:
    node.state.gpu[0].reasons = 0x4
    assert eventually(lambda: said(gpu, "power cap"))
    gpu.lock_clock(705)
    gpu.sync()
    assert node.locked_mhz() == [705, 0]


def test_a_foreign_clock_is_said_and_control_given_up(node: FakeNvml, gpu: GuardedGpu) -> None:
    node.state.gpu[0].locked_mhz = 510
    assert eventually(lambda: said(gpu, "somebody else changed the clock"))
    assert eventually(lambda: node.locked_mhz() == [0, 0])
    with pytest.raises(DeviceUnavailableError, match="somebody else changed the clock"):
        locked(gpu, 900)


def test_a_lost_gpu_is_said_and_its_journal_kept(node: FakeNvml) -> None:
    gpu = choose(DeviceRequest("nvml")).gpu
    gpu.lock_clock(900)
    gpu.sync()
    node.state.gpu[0].any_error = 15
    assert eventually(lambda: said(gpu, "GPU is lost"))
    with pytest.raises(DeviceLostError):
        gpu.lock_clock(705)
    gpu.close()
    assert repair()[0].outcome is Outcome.FAILED
    node.state.gpu[0].any_error = 0
    assert repair()[0].outcome is Outcome.RESTORED
    assert node.locked_mhz() == [0, 0]


def test_a_changed_power_profile_is_said_once_for_every_change(node: FakeNvml) -> None:
    node.state.gpu[0].power_profile = 3
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.lock_clock(900)
        node.state.gpu[0].power_profile = 5
        assert eventually(lambda: said(gpu, "3 before, 5 now"))
        time.sleep(0.6)  # two looks more
        node.state.gpu[0].power_profile = 70
        assert eventually(lambda: said(gpu, "5 before, 70 now"))
        [seen] = gpu.conflicts()
        assert (seen.kind, seen.count) == (ConflictKind.POWER_PROFILE, 2)
        gpu.lock_clock(705)
        gpu.sync()
        assert node.locked_mhz() == [705, 0]


def test_a_driver_without_power_profiles_is_not_asked_for_them(node: FakeNvml, gpu: GuardedGpu) -> None:
    assert gpu.power_profiles() is None
    node.state.gpu[0].power_profile = 3  # not as it was taken: no change that we could tell
    gpu.lock_clock(705)
    time.sleep(0.6)
    assert gpu.conflicts() == ()


def test_persistence_off_is_said_at_the_start(node: FakeNvml) -> None:
    node.state.gpu[0].persistence = 0
    with choose(DeviceRequest("nvml")).gpu as gpu:
        assert eventually(lambda: said(gpu, "persistence mode is off"))


def test_a_driver_that_refuses_is_said_at_the_next_request(node: FakeNvml, gpu: GuardedGpu) -> None:
    node.state.gpu[0].set_error = 4
    gpu.lock_clock(705)
    assert eventually(lambda: gpu._client.failure is not None)
    node.state.gpu[0].set_error = 0
    assert eventually(lambda: node.locked_mhz() == [0, 0])


def test_a_lock_that_was_there_before_the_job_is_said(node: FakeNvml) -> None:
    node.state.gpu[0].locked_mhz = 720
    with choose(DeviceRequest("nvml")).gpu as gpu:
        assert eventually(lambda: said(gpu, "locked before this job came"))
        assert said(gpu, "720 MHz")
        assert gpu.preexisting_mhz == 720
    assert node.locked_mhz() == [720, 0]
