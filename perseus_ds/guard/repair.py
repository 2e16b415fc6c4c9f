"""Find and restore what killed guards left: at the next start, and for ``perseus-ds clocks reset``."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial

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
    clock_mhz: int | None = None
    detail: str = ""
    hidden: str = ""

    def __str__(self) -> str:
        what = f"{self.outcome.value} {self.hidden}".strip()
        return f"{self.uuid}: {what}{f' ({self.detail})' if self.detail else ''}"


def repair(*, open_gpu: OpenGpu = open_gpu) -> tuple[Repair, ...]:
    """Restore every GPU whose guard was killed, from the journal that it left; all GPUs at once.

    A `DevicePermissionError`: the journals cannot be read.
    """

    def repair_one(uuid: str) -> Repair | None:
        backend = journal.BACKENDS[0]
        with contextlib.suppress(BadJournalError):
            left = journal.read(uuid)
            backend = backend if left is None else left.backend
        return _restore_one(uuid, backend, partial(restore_stale, uuid=uuid, for_s=_TRY_S), open_gpu)

    return _all_at_once(repair_one, tuple(journal.journaled_uuids()))


def reset(uuids: tuple[str, ...]) -> tuple[Repair, ...]:
    """Remove any lock from these GPUs, also one that no journal knows, unless a living guard holds it."""
    act = partial(restore, clock_mhz=None, for_s=_TRY_S)
    return _all_at_once(lambda uuid: _restore_one(uuid, journal.BACKENDS[0], act, open_gpu), uuids)


def _all_at_once(act: Callable[[str], Repair | None], uuids: Collection[str]) -> tuple[Repair, ...]:
    """Act on each GPU in a thread of its own: 30 s of patience with a lost one hold up no healthy one."""
    with ThreadPoolExecutor(max(len(uuids), 1), "perseus-repair") as threads:
        return tuple(one for one in threads.map(act, uuids) if one is not None)


def _restore_one(
    uuid: str, backend: str, act: Callable[[Gpu], Restored | None], open_gpu: OpenGpu
) -> Repair | None:
    """Restore one GPU, opened anew at each try and its lock held; ``None``: nothing (new) to report."""

    def attempt() -> Repair | None:
        with opened_to_restore(open_gpu, backend, uuid) as gpu, OwnershipLock(uuid, _OWNER):
            was_journaled = uuid in journal.journaled_uuids()
            restored = act(gpu)
            if restored is None:
                journal.remove(uuid)
                return Repair(uuid, Outcome.NOTHING) if was_journaled else None
            restored.forget(uuid)
            outcome = Outcome.UNSEEN if restored.hidden else Outcome.RESTORED
            return Repair(uuid, outcome, restored.clock_mhz, restored.remark, restored.hidden)

    def may_yet_succeed(error: DeviceError) -> bool:
        """Retry all but a living holder, a GPU that is not here, and a right that we lack."""
        without_right = isinstance(error, DevicePermissionError) and missing_right() is not None
        return not (isinstance(error, DeviceHeldError | DeviceAbsentError) or without_right)

    try:
        return retry(attempt, RESTORE_S, may_yet_succeed)
    except DeviceHeldError as error:
        return Repair(uuid, Outcome.HELD, detail=str(error))
    except DeviceError as error:
        gone = isinstance(error, DeviceAbsentError) and uuid in journal.journaled_uuids()
        return Repair(uuid, Outcome.GONE) if gone else Repair(uuid, Outcome.FAILED, detail=str(error))


def restore_without_journal(own: Gpu, backend: str, restore_clock_mhz: int | None) -> None:
    """Restore what a guard of ours left, by what its trainer knows of it: its journal may be gone.

    The trainer's own handle comes first: opening is many calls, of which each may fail. A GPU that another
    guard holds by now was restored by it. A `DeviceError`: refused to the end of our patience.
    """
    uuid = own.identify().uuid

    def restore_with(gpu: Gpu) -> None:
        with contextlib.ExitStack() as held:
            with contextlib.suppress(DevicePermissionError):  # the folder cannot be made any more
                held.enter_context(OwnershipLock(uuid, _OWNER))
            restored = restore(gpu, restore_clock_mhz, for_s=0.0)
            with contextlib.suppress(DevicePermissionError):
                restored.forget(uuid)

    def attempt() -> None:
        try:
            restore_with(own)
        except DeviceHeldError:
            return
        except DeviceError:
            with opened_to_restore(open_gpu, backend, uuid) as gpu:
                restore_with(gpu)

    retry(attempt, RESTORE_S, any_error)


def stale_journals() -> dict[str, str]:
    """Find the journals of this boot whose guard is gone, and whose each was; nothing is changed."""
    stale: dict[str, str] = {}
    for uuid in journal.journaled_uuids() if journal.guard_path().exists() else ():
        if is_held(uuid):
            continue
        try:
            left = journal.read(uuid)
        except BadJournalError as error:
            stale[uuid] = error.message
            continue
        if left is not None and left.boot_id == journal.boot_id():
            stale[uuid] = f"the guard of {left.owner} was killed"
    return stale


def is_held(uuid: str) -> bool:
    """Return whether a living guard holds a GPU."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(journal.guard_path() / f"{uuid}.lock", flags)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # or locks are refused here, so that nothing is known
        return True
    finally:
        os.close(file)
    return False
