"""A GPU taken and given back: the journal at every call, what a guard left, what looks locked."""

import dataclasses

import pytest
from lone_job import UUID, DeskGpu

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, apparent_lock_mhz
from perseus_ds.errors import DeviceError, DeviceUnavailableError, DeviceUnsupportedError
from perseus_ds.guard import journal
from perseus_ds.guard.claim import GpuClaim, OwnershipLock
from perseus_ds.guard.journal import Journal, boot_id


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


def left(boot: str, restore_clock_mhz: int | None = 1200) -> None:
    journal.write(Journal(UUID, "A100", restore_clock_mhz, "a job that died", 1, boot))


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
    def full(entry: Journal) -> None:
        raise DeviceError(f"no room for {dataclasses.asdict(entry)['uuid']}")

    monkeypatch.setattr(journal, "write", full)
    with pytest.raises(DeviceError, match="no room"):
        GpuClaim(DeskGpu(), "job")
    OwnershipLock(UUID, "the next").release()


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
def test_a_steady_clock_below_the_maximum_is_a_lock_and_nothing_less_clear(
    samples: list[Achieved], locked_mhz: int | None
) -> None:
    assert apparent_lock_mhz(samples, ABLE) == locked_mhz
