"""Find and restore what killed guards left: at the next start, and for ``perseus-ds clocks reset``."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from perseus_ds.device.gpu import Gpu, missing_right
from perseus_ds.errors import DeviceAbsentError, DeviceError, DeviceHeldError, DevicePermissionError
from perseus_ds.guard import journal
from perseus_ds.guard.claim import (
    RESTORE_S,
    OpenGpu,
    OwnershipLock,
    Restored,
    any_error,
    open_gpu,
    opened_to_restore,
    restore,
    restore_stale,
    retry,
)
from perseus_ds.guard.journal import BadJournalError

_OWNER = "perseus-ds clocks reset"
_TRY_S = 2.0  # with one handle; then the GPU is opened anew

T = TypeVar("T")


class Outcome(Enum):
    """Outcome of the repair of one GPU."""

    RESTORED = "put back"
    UNSEEN = "put back, not confirmed while"
    NOTHING = "nothing to put back: its journal is of an earlier boot"
    GONE = "not on this machine: its journal stays, should it come back"
    HELD = "left alone: a living guard holds it"
    FAILED = "could not be put back"


@dataclass(frozen=True, slots=True)
class Repair:
    """A GPU that was looked after; ``clock_mhz`` is the lock it has now (``None``: none)."""

    uuid: str
    outcome: Outcome
    clock_mhz: int | None
    detail: str
    hidden: str = ""

    def __str__(self) -> str:
        what = f"{self.outcome.value} {self.hidden}".strip()
        return f"{self.uuid}: {what}{f' ({self.detail})' if self.detail else ''}"


def repair(*, open_gpu: OpenGpu = open_gpu) -> tuple[Repair, ...]:
    """Restore every GPU whose guard was killed, from the journal that it left; all GPUs at once.

    Raises:
        DevicePermissionError: the journals cannot be read.
    """
    done = _all_at_once(partial(_repaired, open_gpu=open_gpu), tuple(journal.journaled()))
    return tuple(one for one in done if one is not None)


def reset(uuids: tuple[str, ...]) -> tuple[Repair, ...]:
    """Remove any lock from these GPUs, also one that no journal knows, unless a living guard holds it."""
    return tuple(_all_at_once(_reset, uuids))


def restore_without_journal(own: Gpu, backend: str, restore_clock_mhz: int | None) -> None:
    """Restore what a guard of ours left, by what its trainer knows of it: its journal may be gone.

    The trainer's own handle comes first: opening is many calls, of which each may fail. A GPU that another
    guard holds by now was restored by it.

    Raises:
        DeviceError: refused to the end of our patience.
    """
    uuid = own.identify().uuid

    def act() -> None:
        try:
            _restore_known(own, uuid, restore_clock_mhz)
        except DeviceHeldError:
            return
        except DeviceError:
            with opened_to_restore(open_gpu, backend, uuid) as gpu:
                _restore_known(gpu, uuid, restore_clock_mhz)

    retry(act, RESTORE_S, any_error)


def _restore_known(gpu: Gpu, uuid: str, restore_clock_mhz: int | None) -> None:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(DevicePermissionError):  # the folder cannot be made any more
            held.callback(OwnershipLock(uuid, _OWNER).release)
        restored = restore(gpu, restore_clock_mhz, for_s=0.0)
        with contextlib.suppress(DevicePermissionError):
            restored.forget(uuid)


def _all_at_once(act: Callable[[str], T], uuids: Collection[str]) -> list[T]:
    """Act on each GPU in a thread of its own: 30 s of patience with a lost one hold up no healthy one."""
    with ThreadPoolExecutor(max(len(uuids), 1), "perseus-repair") as threads:
        return list(threads.map(act, uuids))


def _repaired(uuid: str, open_gpu: OpenGpu) -> Repair | None:
    """Repair one GPU; ``None``: there is nothing (new) to report."""
    backend = journal.BACKENDS[0]
    with contextlib.suppress(BadJournalError):
        left = journal.read(uuid)
        backend = backend if left is None else left.backend

    def act(gpu: Gpu) -> Repair | None:
        was_journaled = uuid in journal.journaled()
        restored = restore_stale(gpu, uuid, for_s=_TRY_S)
        if restored is None:
            journal.remove(uuid)
            return Repair(uuid, Outcome.NOTHING, None, "") if was_journaled else None
        return _report(uuid, restored)

    try:
        return _insist(act, open_gpu, backend, uuid)
    except DeviceAbsentError:
        return Repair(uuid, Outcome.GONE, None, "")
    except DeviceError as error:
        return _failed(uuid, error)


def _reset(uuid: str) -> Repair:
    def act(gpu: Gpu) -> Repair:
        return _report(uuid, restore(gpu, None, for_s=_TRY_S))

    try:
        return _insist(act, open_gpu, journal.BACKENDS[0], uuid)
    except DeviceError as error:
        return _failed(uuid, error)


def _insist(act: Callable[[Gpu], T], open_gpu: OpenGpu, backend: str, uuid: str) -> T:
    """Act with the GPU opened anew and its lock held, until that succeeds or cannot."""

    def attempt() -> T:
        with opened_to_restore(open_gpu, backend, uuid) as gpu:
            lock = OwnershipLock(uuid, _OWNER)
            try:
                return act(gpu)
            finally:
                lock.release()

    return retry(attempt, RESTORE_S, _may_yet_succeed)


def _failed(uuid: str, error: DeviceError) -> Repair:
    outcome = Outcome.HELD if isinstance(error, DeviceHeldError) else Outcome.FAILED
    return Repair(uuid, outcome, None, str(error))


def _report(uuid: str, restored: Restored) -> Repair:
    restored.forget(uuid)
    outcome = Outcome.UNSEEN if restored.hidden else Outcome.RESTORED
    return Repair(uuid, outcome, restored.clock_mhz, restored.remark, restored.hidden)


def _may_yet_succeed(error: DeviceError) -> bool:
    """Retry all but a living holder, a GPU that is not here, and a right that we lack."""
    without_right = isinstance(error, DevicePermissionError) and missing_right() is not None
    return not (isinstance(error, DeviceHeldError | DeviceAbsentError) or without_right)


@dataclass(frozen=True, slots=True)
class StaleJournal:
    """A journal of this boot whose guard is gone; ``what`` states whose it was, or why it cannot be read."""

    uuid: str
    what: str


def stale_journals() -> Iterator[StaleJournal]:
    """Find the journals whose guard is gone; nothing is changed, no folder made.

    Raises:
        DevicePermissionError: the folder of the journals is there and cannot be used.
    """
    for uuid in journal.journaled() if journal.guard_path().exists() else ():
        if is_held(uuid):
            continue
        try:
            left = journal.read(uuid)
        except BadJournalError as error:
            yield StaleJournal(uuid, error.message)
            continue
        if left is not None and left.boot_id == journal.boot_id():
            yield StaleJournal(uuid, f"the guard of {left.owner} was killed")


def is_held(uuid: str) -> bool:
    """Return whether a living guard holds a GPU."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(journal.guard_path() / f"{uuid}.lock", flags)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
