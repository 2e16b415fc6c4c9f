"""A process reads a GPU for its trainer: what it sees, its end with the trainer, and what follows its own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fcntl import F_SETPIPE_SZ, fcntl
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from hosts import eventually
from processes import alive

import perseus_ds
from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceLostError, DeviceUnavailableError
from perseus_ds.runtime import energy_monitor
from perseus_ds.runtime.energy_monitor import EnergyWatch, GpuReading, ReadingProcess

pytestmark = pytest.mark.thorough

GPU_IS_LOST = 15  # nvml.h 13, enum nvmlReturn_t
PATIENCE_S = 120.0
LEAST_BYTES = 30
"""Bytes of a look: two numbers of nine bytes, and what says that they are a tuple of seven."""

TRAINER = """
import os, time
from perseus_ds.runtime.energy_monitor import ReadingProcess
process = ReadingProcess("nvml", "{uuid}", 0.02)
if os.fork() == 0:
    time.sleep(600)  # a worker, with a copy of all that is open
while not process.take():
    time.sleep(0.01)
print(process.pid, flush=True)
time.sleep(600)
"""


def wait_for(what: Callable[[], object]) -> None:
    assert eventually(what, PATIENCE_S), "it never came"


def reads_in_threads() -> bool:
    return "perseus-energy" in {one.name for one in threading.enumerate()}


@pytest.fixture
def watch(node: FakeNvml) -> Iterator[EnergyWatch]:
    """One whose process has seen the counter move."""
    with NvmlGpu(DeviceRequest("nvml")) as gpu:
        watch = EnergyWatch(gpu)
        watch.start()
        wait_for(lambda: len(watch.trace(0.0)) > 3)
        yield watch
        watch.close()


def reader_of(node: FakeNvml) -> int:
    (pid,) = [pid for pid, words in node.processes().items() if energy_monitor.__name__ in words]
    return pid


def test_it_sees_what_this_process_would(node: FakeNvml) -> None:
    node.state.gpu[1].temperature_c = 61
    process, seen = ReadingProcess("nvml", UUID.format(1), 0.02), list[GpuReading]()
    wait_for(lambda: seen.extend(process.take()) or len(seen) >= 10)
    with NvmlGpu(DeviceRequest("nvml", local_rank=1)) as gpu:
        now_s, energy_j, achieved = gpu.now_s(), gpu.energy_j(), gpu.achieved()
    process.close()
    assert [one.at_s for one in seen] == sorted(one.at_s for one in seen)
    assert 0.0 < now_s - seen[-1].at_s < PATIENCE_S
    assert 0.0 < seen[-1].energy_j <= energy_j
    assert [one.achieved for one in seen[:10]] == [*[None] * 4, achieved] * 2
    assert [one.temperature_c for one in seen[:10]] == [*[None] * 4, 61.0] * 2
    assert not alive(process.pid)


def test_energy_is_the_sum_of_the_steps_that_a_process_reads(watch: EnergyWatch, node: FakeNvml) -> None:
    assert not reads_in_threads()
    assert watch.trouble() == ""
    first_j, last_j = watch.trace(0.0).energy_j[[0, -1]]
    assert watch.taken_j >= last_j - first_j > 0.0
    pid = reader_of(node)
    watch.close()
    assert not alive(pid)


def test_a_process_that_is_killed_is_started_again(watch: EnergyWatch, node: FakeNvml) -> None:
    before_j, pid = watch.taken_j, reader_of(node)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: watch.catch_up() or watch.trouble())
    ended_s = time.monotonic()
    wait_for(lambda: len(watch.trace(ended_s)) > 3)
    assert watch.error is None
    assert watch.trouble() == "", "once"
    assert watch.taken_j >= before_j
    assert reader_of(node) != pid
    assert not reads_in_threads()


def test_without_a_process_nothing_is_read(node: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    files = list(Path("/proc/self/fd").iterdir())
    with NvmlGpu(DeviceRequest("nvml")) as gpu:
        watch = EnergyWatch(gpu)
        watch.start()
        assert isinstance(watch.error, DeviceUnavailableError)
        watch.close()
    assert not reads_in_threads()
    assert len(list(Path("/proc/self/fd").iterdir())) <= len(files), "no pipe is left open"


def test_what_a_scheduler_sends_to_all_of_a_job_does_not_end_it(watch: EnergyWatch, node: FakeNvml) -> None:
    pid = reader_of(node)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(pid, number)
    sent_s = time.monotonic()
    wait_for(lambda: len(watch.trace(sent_s)) > 3)
    assert reader_of(node) == pid
    assert watch.trouble() == ""


def test_a_gpu_that_it_cannot_open_is_the_reason_of_its_end(node: FakeNvml) -> None:
    process = ReadingProcess("nvml", UUID.format(7), 0.02)
    wait_for(lambda: process.take() or process.ended)
    assert "GPU-" in process.ended
    assert process.error is None
    process.close()


def test_one_that_its_driver_holds_up_is_not_waited_for(node: FakeNvml) -> None:
    process = ReadingProcess("nvml", UUID.format(0), 0.02)
    wait_for(process.take)
    node.state.gpu[0].read_us = int(1e6 * PATIENCE_S)
    while process.take():
        time.sleep(0.5)
    process.close()
    assert not alive(process.pid)


def test_the_first_error_of_a_look_is_the_watchs(watch: EnergyWatch, node: FakeNvml) -> None:
    node.state.gpu[0].energy_error = GPU_IS_LOST
    wait_for(lambda: watch.catch_up() or watch.error is not None)
    assert isinstance(watch.error, DeviceLostError)
    assert not reads_in_threads(), "it would only fail again"


def test_it_ends_with_a_trainer_that_is_killed_though_a_worker_alive(node: FakeNvml) -> None:
    program = TRAINER.format(uuid=UUID.format(0))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as trainer:
        pid = int(trainer.stdout.readline())
        assert alive(pid)
        trainer.kill()
        wait_for(lambda: not alive(pid))
        for worker, words in node.processes().items():
            if program in words:
                os.kill(worker, signal.SIGKILL)


def test_what_nobody_takes_waits(node: FakeNvml) -> None:
    """A pipe of a page holds some 50 looks; those that come while it is full arrive in the end."""
    ours, theirs = os.pipe()
    fcntl(theirs, F_SETPIPE_SZ, 4096)
    words = ["nvml", UUID.format(0), "0.005", str(theirs), str(os.getpid())]
    command = [sys.executable, "-m", energy_monitor.__name__, *words]
    seen_s, ended_s = list[float](), 0.0
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(theirs,)) as process,
        Connection(ours, writable=False) as messages,
    ):
        os.close(theirs)
        while not seen_s or seen_s[-1] < ended_s:
            seen_s.append(messages.recv()[0])
            if len(seen_s) == 1:
                time.sleep(4.0)
                ended_s = time.monotonic()
        process.stdin.close()
    assert seen_s == sorted(seen_s)
    meanwhile = sum(at_s < ended_s for at_s in seen_s)
    assert meanwhile > 4096 // LEAST_BYTES, "more than the pipe holds"


def test_its_pace_changes_when_it_is_asked(node: FakeNvml) -> None:
    process = ReadingProcess("nvml", UUID.format(0), PATIENCE_S)
    process.read_every(0.02)
    wait_for(process.take)
    wait_for(process.take)
    process.close()
    process.read_every(0.02)


def test_a_monitor_reads_any_gpu_through_a_process(node: FakeNvml) -> None:
    with perseus_ds.EnergyMonitor(gpu=1) as monitor:
        pid = reader_of(node)
        monitor.begin_window("epoch")
        time.sleep(0.3)
        used = monitor.end_window("epoch")
    assert used.energy_j > used.energy_se_j > 0.0
    assert not alive(pid)
    with pytest.raises(DeviceUnavailableError):
        perseus_ds.EnergyMonitor(gpu=UUID.format(7))
