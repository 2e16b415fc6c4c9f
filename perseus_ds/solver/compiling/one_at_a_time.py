"""One process at a time: whoever waits finds on disk what the first has compiled."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60.0
"""How long to wait for another process; then both compile, as if there were no lock."""
STEP_S = 0.05


@contextmanager
def one_at_a_time(file: Path | None, *, patience_s: float = PATIENCE_S) -> Iterator[bool]:
    """Hold a lock on a file, and state whether it was had: for want of rights, or of patience, go on without.

    The lock ends with the process that holds it, however that ends. The file stays: who removes it would
    take it from under those who wait.
    """
    descriptor = None if file is None else _opened(file)
    try:
        yield descriptor is not None and _had(descriptor, patience_s)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(file: Path) -> int | None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _had(descriptor: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(STEP_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True
