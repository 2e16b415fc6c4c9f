"""Journals: for each GPU that a guard may have locked, the clock that has to be restored, on disk.

A journal is written before the first request and removed after a restore that was read back, so that it
outlives any kill. All journals and ownership locks lie in one folder per machine (root) or user, which nobody
else can write. They are read as if somebody else had written them. A folder or file removed meanwhile is
written again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from perseus_ds.errors import DeviceError, DevicePermissionError, PerseusError
from perseus_ds.files import check_folder, is_whole, read_json, reason_of, write_atomically

BACKENDS = ("nvml", "amdsmi")
VARIABLE = "PERSEUS_GUARD_DIR"
_HINT = f"set {VARIABLE} to a folder of your own"
_VERSION = 1
_MAX_BYTES = 4096
_MAX_MHZ = 100_000
_MAX_PID = 1 << 22  # linux/threads.h
_MAX_TEXT = 512
_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class BadJournalError(DeviceError):
    """A journal that is not ours, or not whole; its GPU may still be locked."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A GPU that may be locked by us; ``restore_clock_mhz`` is restored (``None``: the driver's choice)."""

    uuid: str
    name: str
    restore_clock_mhz: int | None
    owner: str
    pid: int
    boot_id: str
    backend: str = "nvml"


def guard_dir() -> Path:
    """Return the folder, made if missing, or refuse one that others may write to."""
    folder = guard_path()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder, frozenset({os.geteuid()}))
    except (OSError, PerseusError) as error:
        raise DevicePermissionError(
            f"cannot keep a journal of clocks in {folder}: it {reason_of(error)}", hint=_HINT
        ) from error
    return folder


def guard_path() -> Path:
    """Return where the folder is or would be: ``PERSEUS_GUARD_DIR``, or one per machine (root) or user."""
    given = os.environ.get(VARIABLE)
    if given:
        folder = Path(_absolute(given))
        if not folder.name:
            raise DevicePermissionError(f"{VARIABLE}={given} is no folder for journals", hint=_HINT)
        return folder
    if os.geteuid() == 0:
        return Path("/run/perseus_ds")  # gone after a reboot, as locks are
    return Path(tempfile.gettempdir()) / f"perseus_ds-{os.geteuid()}"


@cache
def _absolute(given: str) -> str:
    """Resolve once: the process may change its working directory, and its guard has another."""
    return os.path.abspath(given)  # noqa: PTH100 - links stay as they are


@cache
def boot_id() -> str:
    """Name this boot of the machine; clocks do not outlive it."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def write(journal: Journal) -> None:
    """Replace a GPU's journal in one step; it is on disk when this returns."""
    path, fields = path_of(journal.uuid), asdict(journal)
    content = {"version": _VERSION, "found_mhz": fields.pop("restore_clock_mhz"), **fields}
    try:
        write_atomically(path, json.dumps(content), mode=0o600, sync=True)
    except OSError as error:
        raise DevicePermissionError(f"cannot write {path}: {error.strerror}", hint=_HINT) from error


def read(uuid: str) -> Journal | None:
    """Read a GPU's journal; a `BadJournalError`: it is there and nothing in it can be relied on."""
    path = path_of(uuid)
    try:
        return _parse(uuid, read_json(path, most_bytes=_MAX_BYTES, writers=frozenset({0, os.geteuid()})))
    except FileNotFoundError:
        return None
    except (OSError, PerseusError) as error:
        what = f"the journal {path} {reason_of(error)}"
        raise BadJournalError(what, hint="default clocks are restored") from error


def remove(uuid: str) -> None:
    """Record that a GPU's clock is restored."""
    with contextlib.suppress(OSError):
        path_of(uuid).unlink(missing_ok=True)


def journaled_uuids() -> Iterator[str]:
    """List the GPUs that may be locked by a guard, alive or dead."""
    yield from sorted(path.stem for path in guard_dir().glob("*.json") if _SAFE.fullmatch(path.stem))


def path_of(uuid: str) -> Path:
    """Return the path of a GPU's journal, or refuse a UUID that is no plain name."""
    if _SAFE.fullmatch(uuid) is None:
        raise DevicePermissionError(f"{uuid!r:.60} cannot be the name of a GPU")
    return guard_dir() / f"{uuid}.json"


def _parse(uuid: str, content: object) -> Journal:
    if not isinstance(content, dict):
        raise PerseusError("is not an object")
    if content.get("version") != _VERSION:
        raise PerseusError(f"is of version {content.get('version')!r:.20}, we read version {_VERSION}")
    if content.get("uuid") != uuid:
        raise PerseusError(f"is about {content.get('uuid')!r:.60}")
    restore_clock_mhz, texts = content.get("found_mhz", 0), ("name", "owner", "boot_id")
    is_sound = {
        "backend": content.get("backend") in BACKENDS,
        "found_mhz": restore_clock_mhz is None or is_whole(restore_clock_mhz, 1, _MAX_MHZ),
        "pid": is_whole(content.get("pid"), 0, _MAX_PID),
        **{key: isinstance(content.get(key), str) and len(content[key]) <= _MAX_TEXT for key in texts},
    }
    for key in (key for key, sound in is_sound.items() if not sound):
        raise PerseusError(f"has {key} {content.get(key)!r:.40}")
    fields = {key: content[key] for key in is_sound if key != "found_mhz"}
    return Journal(uuid=uuid, restore_clock_mhz=restore_clock_mhz, **fields)
