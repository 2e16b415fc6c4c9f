"""Driver errors on every call, opening and closing too: the way back outlasts them, whatever the code."""

import subprocess
import sys

import pytest
from fake_nvml import CLOSE, EVERY_CALL, OPEN, READ, UUID, FakeNvml
from processes import Job, alive, eventually, free
from test_tired_driver import left_locked, reset

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.guard import journal
from perseus_ds.guard.journal import Journal
from perseus_ds.guard.open import choose
from perseus_ds.guard.repair import Outcome, repair
from perseus_ds.guard.repair import reset as reset_all
from perseus_ds.guard.spawn import SpawnedGuard

pytestmark = pytest.mark.e2e

FINAL_ELSEWHERE = (15, 16, 8, 4, 17, 3, 2, 13, 25)


def journaled(node: FakeNvml, *, boot: str | None = None) -> None:
    """A GPU as a killed guard leaves it."""
    node.state.gpu[0].locked_mhz, node.state.gpu[0].utilization = 660, 50
    uuid, boot_id = UUID.format(0), boot or journal.boot_id()
    journal.write(Journal(uuid, "Fake A100", None, "a job that was killed", 1, boot_id))


@pytest.mark.parametrize("code", FINAL_ELSEWHERE)
def test_no_code_is_final_on_the_way_back(node: FakeNvml, code: int) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    node.refuse_for(0.3, code=code)
    job.kill_trainer()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert free(node)


@pytest.mark.parametrize("calls", [OPEN, READ, EVERY_CALL])
def test_errors_while_a_guard_is_killed_outlast_nothing(node: FakeNvml, calls: int) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    node.strike(calls, for_s=1.0)
    job.kill_guard()
    assert eventually(lambda: free(node))
    assert alive(job.process.pid)
    job.kill_trainer()
    job.wait()


def killed_guard(own: NvmlGpu) -> SpawnedGuard:
    """A guard that was killed while it held the GPU, as its trainer knows it."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process.kill()
    guard = SpawnedGuard(process, own, "nvml")
    guard.has_taken = True
    return guard


def test_a_clock_that_another_sets_after_the_restore_stays(node: FakeNvml) -> None:
    journaled(node)
    with NvmlGpu(DeviceRequest("nvml")) as own:
        guard = killed_guard(own)
        guard.ensure_restored()
        assert free(node)
        node.state.gpu[0].locked_mhz = 660
        guard.ensure_restored()
        assert node.state.gpu[0].locked_mhz == 660


@pytest.mark.slow
def test_a_duty_that_failed_is_done_at_the_next_call(
    node: FakeNvml, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_repair_never_fails_for_a_driver_that_is_tired(node: FakeNvml) -> None:
    node.strike(pct=10)
    for _ in range(12):
        journaled(node)
        assert [one.outcome for one in repair()] == [Outcome.RESTORED]
        assert free(node)


def test_a_gpu_is_gone_only_where_looking_it_up_says_so(node: FakeNvml) -> None:
    journaled(node)
    node.strike(code=6, pct=20)  # "not found", of calls that do not look for anything
    assert [one.outcome for one in repair()] == [Outcome.RESTORED]
    assert free(node)


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


def test_an_error_at_closing_takes_nothing_back(node: FakeNvml) -> None:
    journaled(node)
    node.strike(CLOSE, pct=100)
    assert [one.outcome for one in repair()] == [Outcome.RESTORED]
    NvmlGpu(DeviceRequest("nvml")).close()


def test_a_clock_that_cannot_be_read_is_put_back_all_the_same(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    node.strike(READ, for_s=2.0)
    job.kill_trainer()
    assert eventually(lambda: free(node))
    assert alive(job.guard), "it insists on seeing it"
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert list(journal.journaled_uuids()) == []


def test_a_journal_of_another_boot_puts_nothing_back(node: FakeNvml) -> None:
    journaled(node, boot="another")
    node.state.gpu[0].locked_mhz = 0
    told = reset(node)
    assert told.returncode == 0
    assert "earlier boot" in told.stdout
    assert list(journal.journaled_uuids()) == []


IDLE = 1


def test_an_idle_gpu_shows_no_clock_and_the_next_job_frees_one_that_still_stands(node: FakeNvml) -> None:
    left_locked(node)
    node.state.gpu[0].reasons, node.state.gpu[0].ignores = IDLE, 1 << 40  # it says yes and does nothing
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
        gpu.lock_clock(900)
        gpu.sync()
        node.state.gpu[0].reasons, node.state.gpu[0].ignores = IDLE, 1 << 40
    node.state.gpu[0].ignores = 0
    assert [one.outcome for one in repair()] == [Outcome.RESTORED]
    assert free(node)


def test_a_clock_that_is_seen_to_be_free_leaves_nothing_behind(node: FakeNvml) -> None:
    node.state.gpu[0].reasons = IDLE
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.lock_clock(900)
        gpu.sync()
    node.state.gpu[0].reasons = 0
    assert repair() == ()
