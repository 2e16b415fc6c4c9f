"""Clocks that were put back and not seen to be: the driver had taken it, and the GPU was idle.

Such a GPU's journal is kept as ``.done``. Whoever looks later, at a busy GPU, knows by it that a clock which
still stands where our guard had locked it is no operator's.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.device.guard.claim.folder import guard_dir
from perseus_ds.device.guard.claim.journal import boot_id, path_of
from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json, write_trusted
from perseus_ds.files.fields import Content, mapping, text, whole

_DONE = ".done"
_MOST_BYTES, _MOST_MHZ = 4096, 100_000


@dataclass(frozen=True, slots=True)
class Unseen:
    """One GPU whose clock was put back to ``preexisting_mhz``; ``last_mhz`` is where it was, if known."""

    preexisting_mhz: int | None
    last_mhz: int | None

    def may_be(self, standing_mhz: int) -> bool:
        """Whether a clock that stands as if locked may be the one that we were to take away."""
        return standing_mhz != self.preexisting_mhz and self.last_mhz in {None, standing_mhz}


def keep(uuid: str, unseen: Unseen) -> bool:
    """Write it down; return whether that could be done."""
    try:
        content = {"boot_id": boot_id(), **asdict(unseen)}
        write_trusted(_place(uuid), json.dumps(content), mode=0o600, sync=True)
    except (OSError, PerseusError):
        return False
    return True


def find(uuid: str) -> Unseen | None:
    """What is known of a GPU from this boot; what cannot be relied on is nothing."""
    try:
        content = mapping(
            read_json(_place(uuid), most_bytes=_MOST_BYTES, writers=frozenset({0, os.geteuid()})), "it"
        )
        known = Unseen(_clock(content, "preexisting_mhz"), _clock(content, "last_mhz"))
        return known if text(content, "boot_id", most=64) == boot_id() else None
    except (OSError, PerseusError):
        return None


def forget(uuid: str) -> None:
    """Record that the clock was seen, or that a job holds it by now."""
    with contextlib.suppress(OSError, PerseusError):
        _place(uuid).unlink(missing_ok=True)


def unseen_gpus() -> Iterator[str]:
    """List the GPUs of which something is known."""
    for path in sorted(guard_dir().glob(f"*{_DONE}")):
        with contextlib.suppress(PerseusError):
            if _place(path.stem) == path:
                yield path.stem


def _place(uuid: str) -> Path:
    return path_of(uuid).with_suffix(_DONE)


def _clock(content: Content, key: str) -> int | None:
    return None if content.get(key) is None else whole(content, key, least=1, most=_MOST_MHZ)
