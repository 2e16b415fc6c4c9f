"""What is dear to make and only read: made by one worker of a run, shared by all."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def made_once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """Return what ``make`` returns for a folder of this name; whoever comes later reads it there.

    The others wait meanwhile. Where it fails, the next tries again.
    """
    root = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / name
    folder.mkdir(exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "kept.pickle"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(make(folder)))
        found: T = pickle.loads(kept.read_bytes())
    return found
