"""What a guard found on a GPU, on disk, from before its first request until after its restore."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.errors import DevicePermissionError

_VERSION = 1
_SAFE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Journal:
    """One GPU that may be locked by us; ``preexisting_mhz`` is the lock that was there (or ``None``)."""

    uuid: str
    name: str
    preexisting_mhz: int | None
    owner: str
    pid: int
    boot_id: str
    backend: str = "nvml"


def guard_dir() -> Path:
    """The folder of journals and leases, made if missing: ``PERSEUS_GUARD_DIR``, or one per machine or user.

    Raises:
        DevicePermissionError: it cannot be made, or belongs to somebody else.
    """
    given = os.environ.get("PERSEUS_GUARD_DIR")
    if given:
        folder = Path(given)
    elif os.geteuid() == 0:
        folder = Path("/run/perseus_ds")  # gone after a reboot, as locks are
    else:
        folder = Path(tempfile.gettempdir()) / f"perseus_ds-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError(f"belongs to user {folder.stat().st_uid}")
    except OSError as error:
        raise DevicePermissionError(
            f"cannot keep a journal of clocks in {folder}: {error}", hint="set PERSEUS_GUARD_DIR"
        ) from error
    return folder


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
    path = path_of(journal.uuid)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            fields = asdict(journal)
            json.dump({"version": _VERSION, "found_mhz": fields.pop("preexisting_mhz"), **fields}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise DevicePermissionError(f"cannot write {path}: {error}", hint="set PERSEUS_GUARD_DIR") from error


def read(uuid: str) -> Journal | None:
    """Read a GPU's journal; one that is unreadable still says that the GPU may be locked."""
    path = path_of(uuid)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        fields = json.loads(text)
        preexisting_mhz = None if fields["found_mhz"] is None else int(fields["found_mhz"])
        texts = {key: str(fields[key]) for key in ("name", "owner", "boot_id", "backend")}
        return Journal(uuid=uuid, preexisting_mhz=preexisting_mhz, pid=int(fields["pid"]), **texts)
    except (ValueError, KeyError, TypeError):
        return Journal(uuid, "unknown", None, "unknown (the journal is damaged)", 0, boot_id())


def remove(uuid: str) -> None:
    """Say that a GPU is as it was found."""
    path_of(uuid).unlink(missing_ok=True)


def journaled() -> Iterator[str]:
    """List the GPUs that may be locked by a guard, alive or dead."""
    for path in sorted(guard_dir().glob("*.json")):
        yield path.stem


def path_of(uuid: str) -> Path:
    """Where a GPU's journal stands.

    Raises:
        DevicePermissionError: the UUID is no plain name.
    """
    if not _SAFE.fullmatch(uuid) or uuid.startswith("."):
        raise DevicePermissionError(f"{uuid!r} cannot be the name of a GPU")
    return guard_dir() / f"{uuid}.json"
