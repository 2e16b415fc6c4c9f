"""A driver that fails, on any call and with any code, or says yes and does nothing: the way back outlasts it.

Real processes on the fake driver.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from fake_nvml import CLOSE, EVERY_CALL, OPEN, READ, UUID, FakeNvml
from processes import alive, eventually, free, locking_job, set_clock

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DevicePermissionError
from perseus_ds.guard import journal
from perseus_ds.guard.journal import Journal
from perseus_ds.guard.open import choose
from perseus_ds.guard.repair import Outcome, repair
from perseus_ds.guard.repair import reset as reset_all
from perseus_ds.guard.spawn import SpawnedGuard

pytestmark = pytest.mark.e2e

IDLE, NEVER = 1, 1 << 40


def reset(node: FakeNvml, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perseus_ds", "clocks", "reset", *words]
    return subprocess.run(command, env=node.environment(), capture_output=True, text=True, check=False)


def journaled(node: FakeNvml, *, boot: str | None = None, found_mhz: int | None = None) -> None:
    """A GPU whose guard and trainer were killed together."""
    node.state.gpu[0].locked_mhz, node.state.gpu[0].utilization = 660, 50
    uuid, boot_id = UUID.format(0), boot or journal.boot_id()
    journal.write(Journal(uuid, "Fake A100", found_mhz, "a job that was killed", 1, boot_id))


def outcomes() -> list[Outcome]:
    return [one.outcome for one in repair()]


# On the way back no code is final.


@pytest.mark.parametrize("code", [999, 15, 16, 8, 4, 17, 3, 2, 13, 25])
def test_no_code_is_final_on_the_way_back(node: FakeNvml, code: int) -> None:
    job = locking_job(node)
    node.refuse_for(1.0 if code == 999 else 0.3, code=code)
    job.kill_trainer()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert free(node)


@pytest.mark.parametrize("calls", [OPEN, READ, EVERY_CALL])
def test_errors_while_a_guard_is_killed_outlast_nothing(node: FakeNvml, calls: int) -> None:
    job = locking_job(node)
    node.strike(calls, for_s=1.0)
    job.kill_guard()
    assert eventually(lambda: free(node))
    assert alive(job.process.pid)
    job.kill_trainer()
    job.wait()


def killed_guard(own: NvmlGpu, *, reaped: bool = False) -> SpawnedGuard:
    """A guard that was killed while it held the GPU, as its trainer knows it."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process.kill()
    if reaped:
        os.waitpid(process.pid, 0)
    guard = SpawnedGuard(process, own, "nvml")
    guard.has_taken = True
    return guard


@pytest.mark.parametrize("reaped", [False, True])
def test_a_clock_that_another_sets_after_the_restore_stays(node: FakeNvml, *, reaped: bool) -> None:
    """Also where SIGCHLD is ignored, or code of the trainer reaps all children: how it ended is not known."""
    journaled(node)
    with NvmlGpu(DeviceRequest("nvml")) as own:
        guard = killed_guard(own, reaped=reaped)
        guard.ensure_restored()
        assert free(node)
        node.state.gpu[0].locked_mhz = 660
        guard.ensure_restored()
        assert node.state.gpu[0].locked_mhz == 660


@pytest.mark.slow
def test_a_failed_duty_is_done_at_the_next_call(node: FakeNvml, capfd: pytest.CaptureFixture[str]) -> None:
    journaled(node)
    with NvmlGpu(DeviceRequest("nvml")) as own:
        guard = killed_guard(own)
        node.strike(for_s=600.0)
        guard.ensure_restored()  # for 30 s
        assert "not put" in capfd.readouterr().err
        assert not free(node)
        node.strike(0)
        guard.ensure_restored()
        assert free(node)


TROUBLES = {
    "a call in ten fails": partial(FakeNvml.strike, pct=10),
    "not found, of calls that look for nothing": partial(FakeNvml.strike, code=6, pct=20),
    "closing fails": partial(FakeNvml.strike, calls=CLOSE, pct=100),
    "a reset is taken and not done": lambda node: setattr(node.state.gpu[0], "ignores", 1),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_repair_never_fails_for_a_tired_driver(node: FakeNvml, trouble: Callable[[FakeNvml], None]) -> None:
    for _ in range(12):
        journaled(node)
        trouble(node)
        assert outcomes() == [Outcome.RESTORED]
        assert free(node)


def test_an_error_at_closing_is_none(node: FakeNvml) -> None:
    node.strike(CLOSE, pct=100)
    NvmlGpu(DeviceRequest("nvml")).close()


def test_neither_does_a_reset_of_all(node: FakeNvml) -> None:
    node.strike(pct=10)
    for _ in range(6):
        node.state.gpu[0].locked_mhz = node.state.gpu[1].locked_mhz = 660
        done = reset_all((UUID.format(0), UUID.format(1)))
        assert [one.outcome for one in done] == [Outcome.RESTORED, Outcome.RESTORED]
        assert free(node)
    node.state.gpu[0].locked_mhz = node.state.gpu[1].locked_mhz = 660
    told = reset(node, "--all")
    assert (told.returncode, free(node)) == (0, True), told.stdout + told.stderr


def test_a_clock_that_cannot_be_read_is_put_back_all_the_same(node: FakeNvml) -> None:
    job = locking_job(node)
    node.strike(READ, for_s=2.0)
    job.kill_trainer()
    assert eventually(lambda: free(node))
    assert alive(job.guard), "it insists on seeing it"
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert list(journal.journaled_uuids()) == []


# In the middle of a job.


def test_a_lapse_whose_reset_fails_is_tried_again(node: FakeNvml) -> None:
    with choose(DeviceRequest("nvml")).gpu as gpu:
        set_clock(gpu, 660)
        node.state.gpu[0].set_error = 4  # the job is refused and gives up ...
        node.refuse_for(0.5)  # ... and so is the way back, for a while
        gpu.lock_clock(900)
        assert eventually(lambda: gpu.given_up() is not None)
        assert eventually(lambda: free(node))


# A driver that says yes and does nothing, or has not the right.


@pytest.mark.slow
@pytest.mark.parametrize(("what", "said"), [("ignores", "still runs"), ("denied", "no right")])
def test_a_reset_that_is_never_done_is_not_called_put_back(node: FakeNvml, what: str, said: str) -> None:
    journaled(node)
    setattr(node.state.gpu[0], what, NEVER)
    told = reset(node)
    assert (told.returncode, said in told.stdout) == (1, True)
    assert "Traceback" not in told.stderr
    if what == "denied":
        with NvmlGpu(DeviceRequest("nvml")) as gpu, pytest.raises(DevicePermissionError):
            gpu.reset_clock()
    setattr(node.state.gpu[0], what, 0)
    told = reset(node)
    assert (told.returncode, told.stdout.count(UUID.format(0))) == (0, 1), "the journal was kept"
    assert free(node)


def test_an_idle_gpu_shows_no_clock_and_the_next_job_frees_one_that_still_stands(node: FakeNvml) -> None:
    journaled(node)
    node.state.gpu[0].reasons, node.state.gpu[0].ignores = IDLE, NEVER
    told = reset(node)
    assert (told.returncode, "idle" in told.stdout) == (0, True)
    assert list(journal.journaled_uuids()) == [UUID.format(0)], "nobody has seen it put back"
    node.state.gpu[0].utilization = 50
    node.state.gpu[0].reasons = node.state.gpu[0].ignores = 0
    assert not free(node)
    with choose(DeviceRequest("nvml")).gpu:
        assert free(node)
    assert list(journal.journaled_uuids()) == []


def test_a_job_whose_reset_is_not_done_on_a_gpu_that_fell_idle_keeps_its_journal(node: FakeNvml) -> None:
    with choose(DeviceRequest("nvml")).gpu as gpu:
        set_clock(gpu, 900)
        node.state.gpu[0].reasons, node.state.gpu[0].ignores = IDLE, NEVER
    node.state.gpu[0].ignores = 0
    assert outcomes() == [Outcome.RESTORED]
    assert free(node)


def test_a_clock_that_is_seen_to_be_free_leaves_nothing_behind(node: FakeNvml) -> None:
    node.state.gpu[0].reasons = IDLE
    with choose(DeviceRequest("nvml")).gpu as gpu:
        set_clock(gpu, 900)
    node.state.gpu[0].reasons = 0
    assert repair() == ()


# Journals that are gone, moved, of another boot, or name a clock that there is not.


def test_a_living_trainer_restores_though_the_journals_are_gone(node: FakeNvml) -> None:
    job = locking_job(node)
    job.kill_guard(signal.SIGSTOP)
    shutil.rmtree(node.path.parent / "guard")
    job.kill_guard()
    assert eventually(lambda: free(node))
    job.kill_trainer()
    job.wait()


def test_a_removed_folder_comes_back_with_its_journal(node: FakeNvml) -> None:
    job = locking_job(node)
    folder = node.path.parent / "guard"
    shutil.rmtree(folder.rename(folder.with_suffix(".away")))  # at once: its guard may be writing
    assert eventually(lambda: any(folder.glob("*.json")))
    job.kill_both()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    repair()
    assert free(node)


def test_a_relative_guard_folder(node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSEUS_GUARD_DIR", f"here-{os.getpid()}")
    with choose(DeviceRequest("nvml")).gpu as gpu:
        set_clock(gpu, 900)
        monkeypatch.chdir("/")
        assert len(list((tmp_path / f"here-{os.getpid()}").glob("*.json"))) == 1
    assert free(node)


def test_a_journal_of_another_boot_puts_nothing_back(node: FakeNvml) -> None:
    journaled(node, boot="another")
    node.state.gpu[0].locked_mhz = 0
    told = reset(node)
    assert (told.returncode, "earlier boot" in told.stdout) == (0, True)
    assert list(journal.journaled_uuids()) == []


@pytest.mark.parametrize("found_mhz", [905, 99_999])
def test_a_journaled_clock_that_is_not_on_the_grid_refuses_no_gpu(node: FakeNvml, found_mhz: int) -> None:
    journaled(node, found_mhz=found_mhz)
    [fixed] = repair()
    assert fixed.outcome is Outcome.RESTORED
    assert f"{found_mhz} MHz" in fixed.detail
    assert free(node)
