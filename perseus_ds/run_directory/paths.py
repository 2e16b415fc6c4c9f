"""Paths of a job's run directory, its lock, and records that are replaced in one step."""

from __future__ import annotations

import atexit
import codecs
import json
import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from perseus_ds.errors import ConfigError, PerseusError, ProfileError
from perseus_ds.files import (
    KEY,
    check_digest,
    parse_json,
    read_bounded,
    write_atomically,
)


class RunDirectory:
    """The files of the contract, under one path.

    ``request`` is what plans are made from, ``kernels`` a folder of what the ranks traced,
    ``given_timelines`` the timelines of kernels that the planner was given, ``notices`` a folder of what was
    announced from outside, ``metrics`` one of what every rank leaves for monitoring.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.profile = path / "profile.json"
        self.request = path / "plan_request.json"
        self.plan = path / "plan.json"
        self.kernels = path / "kernels"
        self.given_timelines = path / "kernel_timelines.json"
        self.summary = path / "summary.json"
        self.events = path / "events.jsonl"
        self.timelines = path / "timelines.json"
        self.places = path / "places.json"
        self.notices = path / "notices"
        self.metrics = path / "metrics"
        self.ranks = path / "ranks"

    def plan_of(self, microbatches: int) -> Path:
        """Plans for batches of another size than those of ``plan``."""
        return self.path / f"plan.m{microbatches}.json"

    def kernels_of(self, rank: int) -> Path:
        """Return what one rank traced."""
        return self.kernels / f"rank{rank}.json"

    def rank(self, rank: int) -> Path:
        """A rank's measurements."""
        return self.ranks / f"rank_{rank:05d}.json"


# Files that a reader finds whole, the old one or the new one, and records in such files.
#
# A record is JSON with format and version, units in the key names, and is read strictly.

VERSION = 1
MOST_BYTES = 64 * 2**20
Record = TypeVar("Record")


def write_whole(path: Path, text: str | bytes) -> None:
    """Replace ``path`` by a file with ``text`` in one step; a link that others planted is not followed.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def write_json(path: Path, content: object) -> None:
    """Replace ``path`` by ``content`` as JSON that a person can read."""
    write_whole(path, json.dumps(content, indent=1) + "\n")


def write_record(path: Path, name: str, kind: type[Record], record: Record) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    import pydantic  # noqa: PLC0415  # a tenth of a second: for those who write or read a record

    content = pydantic.TypeAdapter(kind).dump_python(record, mode="json")
    write_json(path, {"format": name, "version": VERSION} | content)


def read_record(path: Path, name: str, kind: type[Record], *, remedy: str) -> Record:
    """Read a record from a JSON file, its digest checked where it has one; unknown keys are ignored.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    import pydantic  # noqa: PLC0415  # as above

    try:
        text = read_bounded(path, most_bytes=MOST_BYTES)
        content = parse_json(text)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint or remedy) from error
    if not isinstance(content, dict) or content.get("format") != name:
        raise ProfileError(f"{path} is not a {name}", hint=f'expected "format": "{name}"')
    if content.get("version") != VERSION:
        raise ProfileError(
            f"{path} is a {name} of version {content.get('version')!r:.40}", hint=f"we read version {VERSION}"
        )
    try:
        record = pydantic.TypeAdapter(kind).validate_json(text.removeprefix(codecs.BOM_UTF8), strict=True)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise ProfileError(
            f"{path}: {key} is {first['input']!r:.40}: {first['msg']:.200}", hint=remedy
        ) from error
    except PerseusError as error:
        refusal = type(error) if isinstance(error, ProfileError) else ProfileError
        raise refusal(f"{path}: {error.message}", hint=error.hint) from error
    if KEY in content:
        try:
            check_digest(content)
        except PerseusError as error:
            hint = f'{remedy}, or remove "{KEY}" from it and answer for it yourself'
            raise ProfileError(f"{path}: {error.message}", hint=hint) from error
    return record


# The lock of a run directory, ``lock.json``: one job writes there; the next one gets a numbered directory.
#
# Rank 0 calls `claim`, `touch` from time to time, and `release` when its job leaves. The lock names the host
# and process of its owner.
# On the owner's host its process id and start time tell whether it lives, elsewhere the age of the file does.
# No lock of the operating system is used: over NFS it may hang a job or not be there at all.

STALE_S = 120.0
TOUCH_EVERY_S = 20.0
_FILE = "lock.json"
_MOST_BYTES = 4096
_MOST_DIRECTORIES = 10_000
_TRIES = 100
_HALF_WRITTEN_S = 0.02
_START_FIELD = 18  # of /proc/PID/stat, after the state: clock ticks from boot to the process's start

_held: set[Path] = set()


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A process on a host; ``namespace`` is the boot and the process namespace in which ``pid`` is valid."""

    host: str
    pid: int
    started: int
    namespace: str


_UNKNOWN = LockOwner("an unknown host", 0, 0, "")


@dataclass(frozen=True, slots=True)
class _FoundLock:
    """A lock as it was read; no ``owner``: it is damaged, or still being written."""

    content: bytes
    owner: LockOwner | None
    age_s: float


def claim(asked: Path) -> tuple[Path, LockOwner | None]:
    """Lock a run directory for this process; return its path and, if it is not ``asked``, who has that one.

    A directory that this process has locked already is returned again.

    Raises:
        ConfigError: all numbered directories are in use.
        OSError: a lock cannot be written there.
    """
    own = _this_process()
    first = None
    for number in range(1, _MOST_DIRECTORIES):
        path = asked if number == 1 else _numbered(asked, number)
        other = _lock(path, own)
        if other is None:
            return path, first
        first = first or other
    raise ConfigError(f"{asked} and {_MOST_DIRECTORIES} numbered directories are in use")


def release(path: Path) -> None:
    """Let the next job have a directory that `claim` returned; does nothing where the lock is another's."""
    if path not in _held:
        return
    _held.discard(path)
    with suppress(OSError):
        if _is_own(lock := path / _FILE):  # not in a child that was forked
            lock.unlink()


def touch(path: Path) -> None:
    """Show other hosts that a directory of `claim` is in use; the owner calls it every `TOUCH_EVERY_S`."""
    with suppress(OSError):
        if path in _held and _is_own(lock := path / _FILE):
            os.utime(lock)


def _numbered(asked: Path, number: int) -> Path:
    """A directory beside the one asked for; within it where the folder of both cannot be written to."""
    absolute = Path(os.path.abspath(asked))  # noqa: PTH100  # links stay: only a name is needed
    named = asked if asked.name == absolute.name else absolute
    if named.name and os.access(named.parent, os.W_OK | os.X_OK):
        return named.with_name(f"{named.name}-{number}")
    return asked / f"job-{number}"


def _lock(path: Path, own: LockOwner) -> LockOwner | None:
    """Take a directory's lock; return its owner if that is another process that lives."""
    path.mkdir(parents=True, exist_ok=True)
    lock, content = path / _FILE, json.dumps(asdict(own))
    for _ in range(_TRIES):
        if _create(lock, content):
            _held.add(path)
            return None
        found = _read(lock)
        if found is None:
            continue
        if found.owner == own:
            return None
        if found.owner is None and found.age_s < 1.0:
            time.sleep(_HALF_WRITTEN_S)
        elif _lives(found, own) or not _take_away(lock, found.content):
            return found.owner or _UNKNOWN
    return _UNKNOWN


def _create(lock: Path, content: str | bytes) -> bool:
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError:
        lock.unlink(missing_ok=True)
        raise
    return True


def _read(lock: Path) -> _FoundLock | None:
    """Return what a lock states and its age by the clock of its file system; None if it is gone."""
    try:
        content = read_bounded(lock, most_bytes=_MOST_BYTES)
        age_s = _now_s(lock.parent) - lock.stat().st_mtime
    except FileNotFoundError:
        return None
    except PerseusError:
        return _FoundLock(b"", None, 0.0)
    try:
        owner = _owner(parse_json(content))
    except PerseusError:
        owner = None
    return _FoundLock(content, owner, age_s)


def _owner(found: object) -> LockOwner | None:
    """Return whom a lock's content names; None where it is damaged."""
    if not isinstance(found, dict):
        return None
    pid, started = found.get("pid"), found.get("started")
    if not isinstance(pid, int) or not isinstance(started, int) or min(pid, started) < 0:
        return None
    host, namespace = str(found.get("host")), str(found.get("namespace"))
    return LockOwner(host, pid, started, namespace) if (host + namespace).isprintable() else None


def _now_s(folder: Path) -> float:
    """The present by the file system's clock: the clocks of two hosts may differ by minutes."""
    probe = folder / f".{_FILE}.{secrets.token_hex(6)}"
    with probe.open("xb") as file:
        now_s = os.fstat(file.fileno()).st_mtime
    probe.unlink()
    return now_s


def _lives(found: _FoundLock, own: LockOwner) -> bool:
    owner = found.owner
    if owner is None or not own.namespace or owner.namespace != own.namespace:
        return found.age_s < STALE_S
    started = _started(owner.pid)
    return owner.started == started or (started is None and _is_hidden(owner.pid))


def _take_away(lock: Path, stale: bytes) -> bool:
    """Remove a stale lock and nothing else: another job may have replaced it since it was read.

    Return whether it makes sense to try again: in a folder with the sticky bit it stays its owner's.
    """
    aside = lock.with_name(f".{_FILE}.{secrets.token_hex(6)}")
    try:
        if lock.read_bytes() == stale:
            lock.rename(aside)
            if (taken := aside.read_bytes()) != stale:
                _create(lock, taken)
            aside.unlink()
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return True


@atexit.register
def _release_all() -> None:
    """Release at the end of the process what no job has released."""
    for path in list(_held):
        release(path)


def _is_own(lock: Path) -> bool:
    return lock.read_text() == json.dumps(asdict(_this_process()))


def _this_process() -> LockOwner:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        namespace = ""
    return LockOwner(socket.gethostname(), os.getpid(), _started(os.getpid()) or 0, namespace)


def _started(pid: int) -> int | None:
    """Return when a process started, in clock ticks; None where it has ended or cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *numbers = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(numbers[_START_FIELD])


def _is_hidden(pid: int) -> bool:
    """Return whether a process of another user lives that /proc does not show (its option hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
