"""A guard that is gone for a while, or hangs, and gets control back; conflicts that it sees on its GPU."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest
from fake_nvml import UUID, FakeNvml
from processes import Start, allowing, ask, eventually, lock, serving, set_clock

from perseus_ds.device.gpu import ConflictKind, DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DevicePermissionError, DeviceUnavailableError
from perseus_ds.guard.client import GuardedGpu
from perseus_ds.guard.open import choose
from perseus_ds.guard.spawn import SpawnedGuard, spawn

pytestmark = pytest.mark.e2e

LOST, BACK = ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK


def counts(gpu: GuardedGpu) -> dict[ConflictKind, int]:
    return {seen.kind: seen.count for seen in gpu.conflicts()}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_after_a_restart_the_job_has_its_clock_back(
    node: FakeNvml, start: Start, end: signal.Signals
) -> None:
    daemon = start()
    with choose(DeviceRequest("guardd")).gpu as gpu:
        for restart in range(1, 3):
            set_clock(gpu, 900)
            assert node.locked_mhz() == [900, 0]
            assert gpu.in_control()
            daemon.end(end)
            assert eventually(lambda: not gpu.in_control())
            daemon = start()
            assert eventually(gpu.in_control)
            assert eventually(lambda: node.locked_mhz() == [900, 0]), "as it was asked before"
            assert counts(gpu) == {LOST: restart, BACK: restart}
            assert gpu.given_up() is None
    assert eventually(lambda: node.locked_mhz() == [0, 0])


def test_another_job_may_have_the_gpu_by_then(node: FakeNvml, start: Start) -> None:
    daemon = start()
    with choose(DeviceRequest("guardd")).gpu as gpu:
        set_clock(gpu, 900)
        daemon.process.send_signal(signal.SIGSTOP)  # so that it asks too late
        assert eventually(lambda: not gpu.in_control())
        daemon.end(signal.SIGKILL)
        daemon.path.unlink()
        other_place = daemon.path.with_name("other.sock")
        other = serving(other_place, *allowing())
        sock, _ = other.take()
        with sock:
            lock(sock, 510)
            start()
            assert eventually(lambda: counts(gpu).get(LOST) == 1)
            assert ask(sock, do="sync")["is"] == "synced"
            assert node.locked_mhz() == [510, 0]
            assert not gpu.in_control()
        assert eventually(gpu.in_control)
        assert eventually(lambda: node.locked_mhz() == [900, 0])
        other.end()


def test_a_service_that_refuses_by_now_is_the_end_of_control(node: FakeNvml, start: Start) -> None:
    daemon = start()
    with choose(DeviceRequest("guardd")).gpu as gpu:
        daemon.end()
        start(f"gpus={UUID.format(1)}")
        assert eventually(lambda: isinstance(gpu.given_up(), DevicePermissionError))
        with pytest.raises(DevicePermissionError, match="may not"):
            gpu.lock_clock(900)


def test_a_service_that_hangs_is_noticed_and_asked_again(node: FakeNvml, start: Start) -> None:
    daemon = start()
    with GuardedGpu(
        NvmlGpu(DeviceRequest("nvml")), daemon.connect(), connect=daemon.connect, lease_s=1.5
    ) as gpu:
        set_clock(gpu, 900)
        daemon.process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: counts(gpu) == {LOST: 1})
        daemon.process.send_signal(signal.SIGCONT)
        assert eventually(lambda: counts(gpu) == {LOST: 1, BACK: 1}, 60)
        assert eventually(lambda: node.locked_mhz() == [900, 0])


@contextlib.contextmanager
def spawned(*, lease_s: float, end_s: float) -> Iterator[tuple[GuardedGpu, int]]:
    """Open a GPU like `guarded`, with a lease of its own."""
    sock, process = spawn()
    reader = NvmlGpu(DeviceRequest("nvml"))
    guard = SpawnedGuard(process, reader, "nvml", end_s=end_s)
    with GuardedGpu(reader, sock, guard=guard, lease_s=lease_s) as gpu:
        yield gpu, process.pid
    process.wait(60)


def test_a_guard_of_our_own_that_hangs_is_noticed_and_its_clock_put_back(node: FakeNvml) -> None:
    with spawned(lease_s=1.5, end_s=40.0) as (gpu, pid):
        set_clock(gpu, 900)
        os.kill(pid, signal.SIGSTOP)
        assert eventually(lambda: not gpu.in_control())
        assert eventually(lambda: gpu.given_up() is not None)
        assert "hangs" in str(gpu.given_up())
        assert eventually(lambda: node.locked_mhz() == [0, 0])


def test_a_driver_that_hangs_to_the_end_is_said(node: FakeNvml, capfd: pytest.CaptureFixture[str]) -> None:
    with spawned(lease_s=30.0, end_s=0.3) as (gpu, pid):
        set_clock(gpu, 900)
        node.state.gpu[0].call_us = 8_000_000
        gpu.close()
        said = capfd.readouterr().err
        assert said.count(f"(process {pid}) hangs") == 1
        node.state.gpu[0].call_us = 0
    assert eventually(lambda: node.locked_mhz() == [0, 0])


# Conflicts that a guard sees on its GPU, and its reaction.


@pytest.fixture
def gpu(node: FakeNvml) -> Iterator[GuardedGpu]:
    """The first GPU, with a power profile of an operator's and a clock of ours."""
    node.state.gpu[0].power_profile = 3
    with choose(DeviceRequest("nvml")).gpu as gpu:
        set_clock(gpu, 900)
        yield gpu


def said(gpu: GuardedGpu, words: str) -> bool:
    return any(words in seen.line for seen in gpu.conflicts())


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


def test_a_changed_power_profile_is_said_once_for_every_change(node: FakeNvml, gpu: GuardedGpu) -> None:
    node.state.gpu[0].power_profile = 5
    assert eventually(lambda: said(gpu, "5 now"))
    time.sleep(1.3)  # a look more
    node.state.gpu[0].power_profile = 70
    assert eventually(lambda: said(gpu, "70 now"))
    assert counts(gpu) == {ConflictKind.SETTING_CHANGED: 2}
    set_clock(gpu, 705)
    assert node.locked_mhz() == [705, 0]


def test_a_lock_that_was_there_before_the_job_is_reported_and_reset(node: FakeNvml) -> None:
    node.state.gpu[0].locked_mhz, node.state.gpu[0].utilization = 720, 60
    with choose(DeviceRequest("nvml")).gpu as gpu:
        assert eventually(lambda: ConflictKind.PREEXISTING_LOCK in counts(gpu))
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
