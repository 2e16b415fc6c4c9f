"""What killed guards have left, for those who only look: nothing is changed, no folder made."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass

from perseus_ds.device.guard.claim import journal
from perseus_ds.device.guard.claim.folder import place
from perseus_ds.device.guard.claim.journal import BadJournalError


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A journal of this boot whose guard is gone; ``what`` states whose it was, or why it cannot be read."""

    uuid: str
    what: str


def left_behind() -> Iterator[LeftBehind]:
    """Find the journals whose guard is gone.

    Raises:
        DevicePermissionError: the folder of the journals is there and cannot be used.
    """
    if not place().exists():
        return
    for uuid in journal.journaled():
        if is_held(uuid):
            continue
        try:
            left = journal.read(uuid)
        except BadJournalError as error:
            yield LeftBehind(uuid, error.message)
            continue
        if left is not None and left.boot_id == journal.boot_id():
            yield LeftBehind(uuid, f"the guard of {left.owner} was killed")


def is_held(uuid: str) -> bool:
    """Whether a living guard holds a GPU."""
    try:
        file = os.open(place() / f"{uuid}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
