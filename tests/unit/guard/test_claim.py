"""A GPU taken and given back: the journal at every call, what a guard left, what looks locked; its file."""

import errno
import fcntl
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from lone_job import INDEX, UUID, DeskGpu

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, Gpu, apparent_lock_mhz
from perseus_ds.errors import (
    DeviceError,
    DeviceLostError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
)
from perseus_ds.guard import journal
from perseus_ds.guard.claim import GpuClaim, OwnershipLock
from perseus_ds.guard.journal import BadJournalError, Journal, boot_id, guard_dir
from perseus_ds.guard.repair import Outcome, repair, stale_journals


def test_no_clock_is_set_without_a_journal_and_none_is_freed_before_it_is_put_back() -> None:
    def held_and_journaled(_: int | None) -> None:
        assert journal.read(UUID).boot_id == boot_id()
        with pytest.raises(DeviceUnavailableError, match="by job"):
            OwnershipLock(UUID, "other")

    gpu = DeskGpu(before=held_and_journaled)
    claim = GpuClaim(gpu, "job")
    claim.apply(900)
    journal.remove(UUID)
    claim.apply(705)  # somebody removed it: it is there again before the driver is asked
    claim.release()
    assert gpu.calls == [900, 705, None]
    assert journal.read(UUID) is None
    OwnershipLock(UUID, "the next").release()


def test_a_clock_that_cannot_be_put_back_leaves_its_journal_and_frees_the_lock() -> None:
    gpu = DeskGpu()
    claim = GpuClaim(gpu, "job", patience_s=0.0)
    claim.apply(900)
    gpu.moved_mhz = 900  # whatever is asked, it stays
    with pytest.raises(DeviceError, match="900 MHz"):
        claim.release()
    assert journal.read(UUID) is not None
    OwnershipLock(UUID, "the next").release()


def test_who_looks_for_a_guard_keeps_no_job_from_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is kept from its CPU meanwhile; a guard that lives is named at once."""
    OwnershipLock(UUID, "a job that ended").release()
    look = os.open(journal.path_of(UUID).with_suffix(".lock"), os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    pauses_s = list[float]()

    def pause(pause_s: float) -> None:
        pauses_s.append(pause_s)
        if len(pauses_s) == 20:
            os.close(look)

    monkeypatch.setattr(time, "sleep", pause)
    claim = GpuClaim(DeskGpu(), "job")
    count = len(pauses_s)
    with pytest.raises(DeviceUnavailableError, match="held by job"):
        GpuClaim(DeskGpu(), "another")
    assert len(pauses_s) == count
    claim.release()


def left(boot: str, restore_clock_mhz: int | None = 1200, uuid: str = UUID) -> None:
    journal.write(Journal(uuid, "A100", restore_clock_mhz, "a job that died", 1, boot))


def test_what_an_earlier_guard_left_is_put_right_first_unless_it_was_before_this_boot() -> None:
    left(boot_id())
    gpu = DeskGpu()
    gpu.locked_mhz = 705
    claim = GpuClaim(gpu, "job")
    assert gpu.calls == [1200, None]
    assert claim.locked_before_mhz == 1200, "stated for that job, not for this one"
    claim.release()
    assert gpu.calls == [1200, None, None]
    left("another boot")
    gpu = DeskGpu()
    claim = GpuClaim(gpu, "job")
    assert (gpu.calls, claim.restore_clock_mhz) == ([], None)
    written = journal.read(UUID)
    assert (written.boot_id, written.restore_clock_mhz) == (boot_id(), None)
    claim.release()
    assert gpu.calls == [None]


def test_what_the_driver_refuses_to_restore_keeps_nobody_from_the_gpu() -> None:
    left(boot_id(), 1200)
    gpu = DeskGpu()
    gpu.locked_mhz, gpu.refuses_mhz = 705, {1200}
    claim = GpuClaim(gpu, "job", patience_s=0.0)
    assert gpu.calls == [None]
    assert "1200 MHz" in claim.remark
    claim.release()
    assert journal.read(UUID) is None


def test_a_stated_clock_that_the_gpu_has_not_is_refused_by_its_key() -> None:
    gpu = DeskGpu()
    with pytest.raises(DeviceUnsupportedError, match="restore_clock_mhz 1201"):
        GpuClaim(gpu, "job", restore_clock_mhz=1201)
    assert gpu.calls == []
    OwnershipLock(UUID, "the next").release()


def test_a_journal_that_cannot_be_read_costs_its_gpu_one_line() -> None:
    left(boot_id())
    journal.path_of(UUID).write_text("{")
    gpu = DeskGpu()
    claim = GpuClaim(gpu, "job")
    assert gpu.calls == [None]
    assert str(journal.path_of(UUID)) in claim.remark
    claim.release()
    assert list(journal.journaled_uuids()) == []


def test_a_journal_that_cannot_be_written_leaves_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "write", Mock(side_effect=DeviceError("no room")))
    with pytest.raises(DeviceError, match="no room"):
        GpuClaim(DeskGpu(), "job")
    OwnershipLock(UUID, "the next").release()


def test_a_folder_that_takes_no_locks_is_no_other_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    left(boot_id())
    refused = Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(DevicePermissionError, match=r"No locks available \(set PERSEUS_GUARD_DIR\)"):
        OwnershipLock(UUID, "job")
    assert stale_journals() == {}


# A clock that looks locked, and gets a warning.

ABLE = Capabilities(
    (1410, 1395, 900, 210), (1593,), can_lock=True, why_not=None, counter_period_s=0.1, switch_latency_s=0.01
)


def seen(*clocks_mhz: int, reasons: EventReason = EventReason.NONE) -> list[Achieved]:
    return [Achieved(clock_mhz, reasons) for clock_mhz in clocks_mhz]


@pytest.mark.parametrize(
    ("samples", "locked_mhz"),
    [
        pytest.param(seen(900, 900, 900), 900, id="steady below the maximum"),
        pytest.param(seen(1410, 1410, 1410), None, id="maximum"),
        pytest.param(seen(900, 1395, 900), None, id="unsteady"),
        pytest.param(seen(905, 905, 905), None, id="off the grid"),
        pytest.param(seen(210, 210, 210), None, id="lowest"),
        pytest.param(seen(900, 900, reasons=EventReason.GPU_IDLE), None, id="idle"),
        pytest.param(seen(900, 900, reasons=EventReason.SW_POWER_CAP), None, id="capped"),
        pytest.param([], None, id="nothing seen"),
    ],
)
def test_a_steady_clock_below_the_maximum_is_a_lock(samples: list[Achieved], locked_mhz: int | None) -> None:
    assert apparent_lock_mhz(samples, ABLE) == locked_mhz


# Journals on disk, and what is read from damaged ones.

GPU = "GPU-1"
ENTRY = Journal(GPU, "A100", 900, "job (pid 1)", 1, "boot")


def test_a_journal_comes_back_until_it_is_removed_and_where_its_folder_was(folder: Path) -> None:
    journal.write(ENTRY)
    assert (journal.read(GPU), list(journal.journaled_uuids())) == (ENTRY, [GPU])
    journal.remove(GPU)
    assert (journal.read(GPU), list(journal.journaled_uuids())) == (None, [])
    journal.write(ENTRY)
    shutil.rmtree(folder)
    journal.write(ENTRY)
    assert journal.read(GPU) == ENTRY


OF = {"uuid": GPU, "name": "A100", "owner": "job (pid 1)", "pid": 1, "boot_id": "boot", "backend": "nvml"}
WHOLE = {"version": 1, "found_mhz": 900, **OF}
WRONG = {  # what no JSON of ours is at all: tests/unit/files
    "a version to come": {"version": 2},
    "an unknown backend": {"backend": "rm -rf"},
    "another GPU": {"uuid": "GPU-2"},
    "a clock of text": {"found_mhz": "900"},
    "a clock of truth": {"found_mhz": True},
    "a clock below zero": {"found_mhz": -900},
    "half a clock": {"found_mhz": 900.5},
    "a clock that no GPU has": {"found_mhz": 10**9},
    "a long owner": {"owner": "x" * 2000},
    "an owner that is none": {"owner": None},
    "a process that cannot be": {"pid": 1 << 40},
}
BAD = {
    "cut short": "{",
    "null": "null",
    **{f"no {key}": json.dumps({k: WHOLE[k] for k in WHOLE if k != key}) for key in ("version", "found_mhz")},
    **{name: json.dumps(WHOLE | one) for name, one in WRONG.items()},
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_bad_journal_is_said_in_one_line(text: str) -> None:
    path = journal.path_of(GPU)
    path.write_text(text)
    with pytest.raises(BadJournalError) as caught:
        journal.read(GPU)
    line = str(caught.value)
    assert str(path) in line
    assert "\n" not in line
    assert len(line) < 400
    journal.remove(GPU)
    assert list(journal.journaled_uuids()) == []


def put_link(path: Path) -> None:
    other = path.with_suffix(".elsewhere")
    other.write_text(json.dumps(WHOLE))
    path.symlink_to(other)


def put_by_somebody(path: Path) -> None:
    if os.geteuid():
        pytest.skip("giving files away needs root")
    path.write_text(json.dumps(WHOLE))
    os.chown(path, 65534, -1)


@pytest.mark.parametrize("put", [put_link, put_by_somebody])
def test_a_journal_that_is_no_file_of_ours_is_not_read_and_replaced(put: Callable[[Path], None]) -> None:
    put(journal.path_of(GPU))
    for _ in range(2):
        with pytest.raises(BadJournalError):
            journal.read(GPU)
    journal.write(ENTRY)
    assert journal.read(GPU) == ENTRY


def test_a_folder_in_its_place_is_named() -> None:
    (journal.path_of(GPU) / "inside").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(BadJournalError):
            journal.read(GPU)
    with pytest.raises(DevicePermissionError, match=r"GPU-1\.json"):
        journal.write(ENTRY)


@pytest.mark.parametrize("uuid", ["../../etc/passwd", "", "a/b", ".hidden", "x" * 200])
def test_a_uuid_that_is_no_name_never_becomes_a_path(uuid: str) -> None:
    with pytest.raises(DevicePermissionError, match="cannot be"):
        journal.path_of(uuid)


def test_a_folder_of_everyone_or_nowhere_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DevicePermissionError, match=r"PERSEUS_GUARD_DIR"):
        journal.read(GPU)
    monkeypatch.setenv("PERSEUS_GUARD_DIR", "/proc/nowhere")
    with pytest.raises(DevicePermissionError, match="set PERSEUS_GUARD_DIR"):
        guard_dir()


# GPUs that killed guards left: all are put back at once, whatever stands in the way of one.

LOST = tuple(f"GPU-{INDEX}-{place}" for place in range(3))
HEALTHY = f"GPU-{INDEX}-3"


@pytest.mark.slow
def test_lost_gpus_hold_up_no_healthy_one_and_all_are_answered_in_one_patience() -> None:
    tried: list[str] = []

    def open_gpu(_: str, uuid: str) -> Gpu:
        tried.append(uuid)
        if uuid in LOST:
            raise DeviceLostError(f"{uuid} is lost")
        return DeskGpu()

    for uuid in (*LOST, HEALTHY):
        left(boot_id(), None, uuid)
    done = repair(open_gpu=open_gpu)
    assert Counter(one.outcome for one in done) == {Outcome.FAILED: 3, Outcome.RESTORED: 1}
    last = [len(tried) - 1 - tried[::-1].index(uuid) for uuid in LOST]
    assert max(map(tried.index, (*LOST, HEALTHY))) < min(last), "all are tried before one is given up"


def test_a_gpu_that_a_living_guard_holds_is_left_alone() -> None:
    left(boot_id())
    lease = OwnershipLock(UUID, "a living job")
    opened = Mock(return_value=(gpu := DeskGpu()))
    [one] = repair(open_gpu=opened)
    lease.release()
    assert (one.outcome, gpu.calls) == (Outcome.HELD, [])
    assert opened.call_count == 1, "it is asked once: a guard may live for days"
