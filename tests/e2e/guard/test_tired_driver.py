"""A driver that refuses for a while, or says yes and does nothing: real processes on the fake driver."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_nvml import UUID, FakeNvml
from processes import Job, alive, eventually, free

from perseus_ds.device.gpu import DeviceRequest
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DevicePermissionError
from perseus_ds.guard.open import choose
from perseus_ds.guard.repair import Outcome, repair

pytestmark = pytest.mark.e2e


def reset(node: FakeNvml, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perseus_ds", "clocks", "reset", *words]
    return subprocess.run(command, env=node.environment(), capture_output=True, text=True, check=False)


def left_locked(node: FakeNvml) -> Job:
    """A GPU whose guard and trainer were killed together."""
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_both()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    assert not free(node)
    return job


def test_a_second_of_refusals_after_a_kill_costs_a_second(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    node.refuse_for(1.0)
    job.kill_trainer()
    job.wait()
    assert not free(node)
    assert eventually(lambda: free(node) and not alive(job.guard))


def test_a_moment_of_errors_in_mid_job_is_over_when_it_is_over(node: FakeNvml) -> None:
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.lock_clock(660)
        gpu.sync()
        node.refuse_for(0.2)
        gpu.reset_clock()
        gpu.sync()
        assert free(node)
        gpu.lock_clock(900)
        gpu.sync()
        assert node.locked_mhz() == [900, 0]
        assert gpu.given_up() is None


def test_a_lapse_whose_reset_fails_is_tried_again(node: FakeNvml) -> None:
    gpu = choose(DeviceRequest("nvml")).gpu
    gpu.lock_clock(660)
    gpu.sync()
    node.state.gpu[0].set_error = 4  # the job is refused and gives up ...
    node.refuse_for(0.5)  # ... and so is the way back, for a while
    gpu.lock_clock(900)
    assert eventually(lambda: gpu.given_up() is not None)
    assert eventually(lambda: free(node))
    gpu.close()


def test_now_and_then_an_error_is_no_reason_to_give_up(node: FakeNvml) -> None:
    node.state.gpu[0].refuse_pct, node.state.gpu[0].refuse_code = 30, 999
    with choose(DeviceRequest("nvml")).gpu as gpu:
        for clock_mhz in gpu.capabilities().clocks_mhz[:60]:
            gpu.lock_clock(clock_mhz)
            gpu.sync()
            assert node.locked_mhz()[0] == clock_mhz
        assert gpu.given_up() is None
    assert eventually(lambda: free(node))


def test_a_reset_that_is_taken_and_not_done_is_done_again(node: FakeNvml) -> None:
    left_locked(node)
    node.state.gpu[0].ignores = 1
    assert [one.outcome for one in repair()] == [Outcome.RESTORED]
    assert free(node)


@pytest.mark.slow
def test_a_reset_that_is_never_done_is_not_called_put_back(node: FakeNvml) -> None:
    left_locked(node)
    node.state.gpu[0].ignores = 1_000_000
    told = reset(node)
    assert told.returncode == 1
    assert "still runs" in told.stdout
    assert "Traceback" not in told.stderr
    node.state.gpu[0].ignores = 0
    assert reset(node).returncode == 0, "the journal was kept"
    assert free(node)


@pytest.mark.slow
def test_a_reset_without_the_right_keeps_the_journal_and_says_so(node: FakeNvml) -> None:
    left_locked(node)
    node.state.gpu[0].denied = 1
    told = reset(node)
    assert told.returncode == 1
    assert "no right" in told.stdout
    with NvmlGpu(DeviceRequest("nvml")) as gpu, pytest.raises(DevicePermissionError):
        gpu.reset_clock()
    node.state.gpu[0].denied = 0
    told = reset(node)
    assert (told.returncode, told.stdout.count(UUID.format(0))) == (0, 1)
    assert free(node)


def test_a_living_trainer_restores_though_the_journals_are_gone(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    job.kill_guard(signal.SIGSTOP)
    folder = node.path.parent / "guard"
    shutil.rmtree(folder)
    job.kill_guard()
    assert eventually(lambda: free(node))
    job.kill_trainer()
    job.wait()


def test_a_removed_folder_comes_back_with_its_journal(node: FakeNvml) -> None:
    job = Job()
    assert eventually(lambda: not free(node))
    folder = node.path.parent / "guard"
    shutil.rmtree(folder.rename(folder.with_suffix(".away")))  # at once: its guard may be writing
    assert eventually(lambda: any(folder.glob("*.json")))
    job.kill_both()
    job.wait()
    assert eventually(lambda: not alive(job.guard))
    repair()
    assert free(node)


def test_a_relative_folder_is_the_same_for_trainer_and_guard(
    node: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSEUS_GUARD_DIR", f"here-{os.getpid()}")
    with choose(DeviceRequest("nvml")).gpu as gpu:
        gpu.lock_clock(900)
        gpu.sync()
        monkeypatch.chdir("/")
        assert len(list((tmp_path / f"here-{os.getpid()}").glob("*.json"))) == 1
    assert free(node)


@pytest.mark.parametrize("found_mhz", [905, 99_999])
def test_a_journaled_clock_that_is_not_on_the_grid_refuses_no_gpu(node: FakeNvml, found_mhz: int) -> None:
    left_locked(node)
    [path] = (node.path.parent / "guard").glob("*.json")
    path.write_text(path.read_text().replace('"found_mhz": null', f'"found_mhz": {found_mhz}'))
    [fixed] = repair()
    assert fixed.outcome is Outcome.RESTORED
    assert f"{found_mhz} MHz" in fixed.detail
    assert free(node)
