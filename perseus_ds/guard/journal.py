"""The clock that a GPU has to get back, on disk, from before its first request until after its restore.

It lies in the guards' folder, and is read as if somebody else had written it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from perseus_ds.errors import DeviceError, DevicePermissionError, PerseusError
from perseus_ds.files import check_folder, mapping, read_json, reason_of, text, whole, write_trusted

# Where journals and ownership locks lie: one folder per machine or user, which nobody else can write.

VARIABLE = "PERSEUS_GUARD_DIR"
_HINT = f"set {VARIABLE} to a folder of your own"


def guard_dir() -> Path:
    """The folder, made if missing: ``PERSEUS_GUARD_DIR``, or one per machine (root) or user.

    Raises:
        DevicePermissionError: it cannot be made, or others may write to it.
    """
    folder = place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder, frozenset({os.geteuid()}))
    except (OSError, PerseusError) as error:
        raise DevicePermissionError(
            f"cannot keep a journal of clocks in {folder}: it {reason_of(error)}", hint=_HINT
        ) from error
    return folder


def place() -> Path:
    """Where the folder is or would be.

    Raises:
        DevicePermissionError: it is the root of all, which is nobody's own.
    """
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
    """Once for all: the process may change its working directory, and its guard has another."""
    return os.path.abspath(given)  # noqa: PTH100 - links stay as they are


BACKENDS = ("nvml", "amdsmi")
_VERSION = 1
_MOST_BYTES = 4096
_MOST_MHZ = 100_000
_MOST_PID = 1 << 22  # linux/threads.h
_SAFE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class BadJournalError(DeviceError):
    """A journal that is not ours, or not whole; its GPU may still be locked."""


@dataclass(frozen=True, slots=True)
class Journal:
    """One GPU that may be locked by us; ``restore_clock_mhz`` is put back (``None``: its default)."""

    uuid: str
    name: str
    restore_clock_mhz: int | None
    owner: str
    pid: int
    boot_id: str
    backend: str = "nvml"

    def keep(self) -> None:
        """Write it again where somebody removed it.

        Raises:
            DevicePermissionError: that cannot be.
        """
        if not path_of(self.uuid).exists():
            write(self)


def boot_id() -> str:
    """Name this boot of the machine; clocks do not outlive it."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def write(journal: Journal) -> None:
    """Replace a GPU's journal in one step; it is on disk when this returns.

    Raises:
        DevicePermissionError: the folder cannot be written.
    """
    path, fields = path_of(journal.uuid), asdict(journal)
    content = {"version": _VERSION, "found_mhz": fields.pop("restore_clock_mhz"), **fields}
    try:
        write_trusted(path, json.dumps(content), mode=0o600, sync=True)
    except OSError as error:
        raise DevicePermissionError(
            f"cannot write {path}: {error.strerror}", hint="set PERSEUS_GUARD_DIR"
        ) from error


def read(uuid: str) -> Journal | None:
    """Read a GPU's journal.

    Raises:
        BadJournalError: it is there and nothing in it can be relied on.
    """
    path = path_of(uuid)
    try:
        return _journal(uuid, read_json(path, most_bytes=_MOST_BYTES, writers=frozenset({0, os.geteuid()})))
    except FileNotFoundError:
        return None
    except (OSError, PerseusError) as error:
        raise BadJournalError(
            f"the journal {path} {reason_of(error)}", hint="default clocks are put back"
        ) from error


def remove(uuid: str) -> None:
    """Record that a GPU's clock is put back."""
    with contextlib.suppress(OSError):
        path_of(uuid).unlink(missing_ok=True)


def journaled() -> Iterator[str]:
    """List the GPUs that may be locked by a guard, alive or dead."""
    yield from sorted(path.stem for path in guard_dir().glob("*.json") if _is_name(path.stem))


def path_of(uuid: str) -> Path:
    """Where a GPU's journal stands.

    Raises:
        DevicePermissionError: the UUID is no plain name.
    """
    if not _is_name(uuid):
        raise DevicePermissionError(f"{uuid!r:.60} cannot be the name of a GPU")
    return guard_dir() / f"{uuid}.json"


def _is_name(uuid: str) -> bool:
    return _SAFE.fullmatch(uuid) is not None and not uuid.startswith(".")


def _journal(uuid: str, value: object) -> Journal:
    content = mapping(value, "it")
    version = whole(content, "version", least=0, most=_MOST_PID)
    if version != _VERSION:
        raise PerseusError(f"is of version {version}, we read version {_VERSION}")
    if text(content, "uuid") != uuid:
        raise PerseusError(f"speaks of {text(content, 'uuid')!r:.60}")
    backend = text(content, "backend")
    if backend not in BACKENDS:
        raise PerseusError(f"has the backend {backend!r:.40}, known are {', '.join(BACKENDS)}")
    found_mhz = content.get("found_mhz", "nothing")
    return Journal(
        uuid=uuid,
        name=text(content, "name", most=256),
        restore_clock_mhz=None if found_mhz is None else whole(content, "found_mhz", least=1, most=_MOST_MHZ),
        owner=text(content, "owner", most=512),
        pid=whole(content, "pid", least=0, most=_MOST_PID),
        boot_id=text(content, "boot_id", most=64),
        backend=backend,
    )


# What killed guards have left, for those who only look: nothing is changed, no folder made.


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
    for uuid in journaled():
        if is_held(uuid):
            continue
        try:
            left = read(uuid)
        except BadJournalError as error:
            yield LeftBehind(uuid, error.message)
            continue
        if left is not None and left.boot_id == boot_id():
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
