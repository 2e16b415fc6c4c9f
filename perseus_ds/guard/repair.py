"""Put right what killed guards left: for the next start, and for ``perseus-ds clocks reset``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from perseus_ds.device.gpu import Gpu, missing_right
from perseus_ds.errors import DeviceAbsentError, DeviceError, DeviceHeldError, DevicePermissionError
from perseus_ds.guard import journal
from perseus_ds.guard.claim import (
    WAY_BACK_S,
    OpenGpu,
    OwnershipLock,
    PutBack,
    Unseen,
    forget,
    insist,
    open_gpu,
    opened_to_put_back,
    put_back_left,
    restore,
    whatever,
)
from perseus_ds.guard.journal import BadJournalError

_OWNER = "perseus-ds clocks reset"
_TRY_S = 2.0  # with one handle; then the GPU is opened anew

T = TypeVar("T")


class Outcome(Enum):
    """What became of one GPU."""

    RESTORED = "put back"
    UNSEEN = "put back, not confirmed while"
    NOTHING = "nothing to put back: its journal is of an earlier boot"
    GONE = "not on this machine: its journal stays, should it come back"
    HELD = "left alone: a living guard holds it"
    FAILED = "could not be put back"


@dataclass(frozen=True, slots=True)
class Repair:
    """One GPU that was looked after.

    ``clock_mhz`` is the lock it has now (``None``: none), ``unseen`` what keeps that from being seen.
    """

    uuid: str
    outcome: Outcome
    clock_mhz: int | None
    detail: str
    unseen: Unseen | None = None

    def __str__(self) -> str:
        what = self.outcome.value if self.unseen is None else f"{self.outcome.value} {self.unseen.why}"
        return f"{self.uuid}: {what}{f' ({self.detail})' if self.detail else ''}"


def repair(*, open_gpu: OpenGpu = open_gpu) -> tuple[Repair, ...]:
    """Put back every GPU whose guard was killed, from the journal that it left; all GPUs at once.

    Raises:
        DevicePermissionError: the journals cannot be read.
    """
    done = _all_at_once(partial(_repaired, open_gpu=open_gpu), tuple(journal.journaled()))
    return tuple(one for one in done if one is not None)


def reset(uuids: tuple[str, ...]) -> tuple[Repair, ...]:
    """Remove any lock from these GPUs, also one that no journal knows, unless a living guard holds it."""
    return tuple(_all_at_once(_reset, uuids))


def _all_at_once(act: Callable[[str], T], uuids: Collection[str]) -> list[T]:
    """Act on each GPU in a thread of its own: 30 s of patience with a lost one hold up no healthy one."""
    with ThreadPoolExecutor(max(len(uuids), 1), "perseus-repair") as threads:
        return list(threads.map(act, uuids))


def repair_without_journal(own: Gpu, backend: str, restore_clock_mhz: int | None) -> None:
    """Put back what a guard of ours left, by what its trainer knows of it: its journal may be gone.

    The trainer's own handle comes first: opening is many calls, of which each may fail. A GPU that another
    guard holds by now was put right by it.

    Raises:
        DeviceError: refused to the end of our patience.
    """
    uuid = own.identify().uuid

    def act() -> None:
        try:
            _restore_as_told(own, uuid, restore_clock_mhz)
        except DeviceHeldError:
            return
        except DeviceError:
            with opened_to_put_back(open_gpu, backend, uuid) as gpu:
                _restore_as_told(gpu, uuid, restore_clock_mhz)

    insist(act, for_s=WAY_BACK_S, passes=whatever)


def _restore_as_told(gpu: Gpu, uuid: str, restore_clock_mhz: int | None) -> None:
    lock = _lock_if_possible(uuid)
    try:
        unseen = restore(gpu, restore_clock_mhz, for_s=0.0)
        with contextlib.suppress(DevicePermissionError):
            forget(uuid, unseen)
    finally:
        if lock is not None:
            lock.release()


def _lock_if_possible(uuid: str) -> OwnershipLock | None:
    """The lock of a GPU, or nothing where its folder cannot be made any more.

    Raises:
        DeviceHeldError: somebody else holds it by now.
    """
    try:
        return OwnershipLock(uuid, _OWNER)
    except DevicePermissionError:
        return None


def _repaired(uuid: str, open_gpu: OpenGpu) -> Repair | None:
    """Repair one GPU; ``None``: there is nothing (new) to report."""

    def act() -> Repair | None:
        with opened_to_put_back(open_gpu, _backend_of(uuid), uuid) as gpu:
            return _put_right(gpu, uuid)

    try:
        return insist(act, for_s=WAY_BACK_S, passes=_may_yet_succeed)
    except DeviceAbsentError:
        return Repair(uuid, Outcome.GONE, None, "")
    except DeviceError as error:
        return _failed(uuid, error)


def _put_right(gpu: Gpu, uuid: str) -> Repair | None:
    lock, was_journaled = OwnershipLock(uuid, _OWNER), uuid in journal.journaled()
    try:
        back = put_back_left(gpu, uuid, for_s=_TRY_S)
        forget(uuid, None if back is None else back.unseen)
    finally:
        lock.release()
    if back is None:
        return Repair(uuid, Outcome.NOTHING, None, "") if was_journaled else None
    return _outcome(uuid, back, "; ".join(back.remarks))


def _outcome(uuid: str, back: PutBack, detail: str) -> Repair:
    outcome = Outcome.RESTORED if back.unseen is None else Outcome.UNSEEN
    return Repair(uuid, outcome, back.restore_clock_mhz, detail, back.unseen)


def _backend_of(uuid: str) -> str:
    try:
        left = journal.read(uuid)
    except BadJournalError:
        return journal.BACKENDS[0]
    return journal.BACKENDS[0] if left is None else left.backend


def _reset(uuid: str) -> Repair:
    def act() -> Repair:
        with opened_to_put_back(open_gpu, journal.BACKENDS[0], uuid) as gpu:
            return _reset_locked(gpu, uuid)

    try:
        return insist(act, for_s=WAY_BACK_S, passes=_may_yet_succeed)
    except DeviceError as error:
        return _failed(uuid, error)


def _reset_locked(gpu: Gpu, uuid: str) -> Repair:
    lock = OwnershipLock(uuid, _OWNER)
    try:
        back = PutBack(None, restore(gpu, None, for_s=_TRY_S))
        forget(uuid, back.unseen)
    finally:
        lock.release()
    return _outcome(uuid, back, "")


def _may_yet_succeed(error: DeviceError) -> bool:
    """Whatever it is, but a living holder, a GPU that is not here, and a right that we have not."""
    without_right = isinstance(error, DevicePermissionError) and missing_right() is not None
    return not (isinstance(error, DeviceHeldError | DeviceAbsentError) or without_right)


def _failed(uuid: str, error: DeviceError) -> Repair:
    return Repair(
        uuid, Outcome.HELD if isinstance(error, DeviceHeldError) else Outcome.FAILED, None, str(error)
    )
