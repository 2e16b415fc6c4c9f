"""Paths of a job's run directory, its lock, and records that are replaced in one step."""

from __future__ import annotations

import atexit
import codecs
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar

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
MOST_BYTES = 128 * 2**20
Record = TypeVar("Record")


def write_whole(path: Path, text: str | bytes) -> None:
    """Replace ``path`` by a file with ``text`` in one step; a link that others planted is not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def write_json(path: Path, content: object) -> None:
    """Replace ``path`` by ``content`` as JSON that a person can read."""
    write_whole(path, json.dumps(content, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class RecordFormat(Generic[Record]):
    """A format of record files: its name and its record, and what to do about a file that is wrong."""

    name: str
    kind: type[Record]
    remedy: str

    def write(self, record: Record, path: Path) -> None:
        """Write atomically: a reader sees the old file or the new one."""
        import pydantic  # noqa: PLC0415  # a tenth of a second: for those who write or read a record

        content = pydantic.TypeAdapter(self.kind).dump_python(record, mode="json")
        write_json(path, {"format": self.name, "version": VERSION} | content)

    def read(self, path: Path) -> Record:
        """Read a record whose file states its format and version (`read_json_as`)."""

        def check(content: object) -> None:
            if not isinstance(content, dict) or content.get("format") != self.name:
                raise PerseusError(f"is not a {self.name}", hint=f'expected "format": "{self.name}"')
            if content.get("version") != VERSION:
                raise PerseusError(
                    f"is a {self.name} of version {content.get('version')!r:.40}",
                    hint=f"we read version {VERSION}",
                )

        return read_json_as(path, self.kind, remedy=self.remedy, check=check)


def read_json_as(
    path: Path,
    kind: type[Record],
    *,
    remedy: str,
    check: Callable[[object], None] | None = None,
) -> Record:
    """Read a record from a JSON file, its digest checked where it has one; unknown keys are ignored.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    import pydantic  # noqa: PLC0415  # a tenth of a second: for those who write or read a record

    try:
        text = read_bounded(path, most_bytes=MOST_BYTES)
        content = parse_json(text)
        if check is not None:
            check(content)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}", hint=remedy) from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint or remedy) from error
    try:
        record = pydantic.TypeAdapter(kind).validate_json(text.removeprefix(codecs.BOM_UTF8), strict=True)
        if isinstance(content, dict) and KEY in content:
            remedy = f'{remedy}, or remove "{KEY}" from it and answer for it yourself'
            check_digest(content)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        found = "" if first["type"] == "missing" else f" is {first['input']!r:.40}"
        key = ".".join(map(str, first["loc"])) or "it"
        raise ProfileError(f"{path}: {key}{found}: {first['msg']:.200}", hint=remedy) from error
    except PerseusError as error:
        refusal = type(error) if isinstance(error, ProfileError) else ProfileError
        raise refusal(f"{path}: {error.message}", hint=error.hint or remedy) from error
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


def claim(asked: Path) -> tuple[Path, LockOwner | None]:
    """Lock a run directory for this process; return its path and, if it is not ``asked``, who has that one.

    A directory that this process has locked already is returned again. A `ConfigError`: all numbered
    directories are in use. An `OSError`: a lock cannot be written there.
    """
    own = _this_process()
    first = None
    for number in range(1, _MOST_DIRECTORIES):
        path = asked if number == 1 else _with_number(asked, number)
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


def _with_number(asked: Path, number: int) -> Path:
    """A directory beside the one asked for; within it where the folder of both cannot be written to."""
    absolute = Path(os.path.abspath(asked))  # noqa: PTH100  # links stay: only a name is needed
    named = asked if asked.name == absolute.name else absolute
    if named.name and os.access(named.parent, os.W_OK | os.X_OK):
        return named.with_name(f"{named.name}-{number}")
    return asked / f"job-{number}"


def _lock(path: Path, own: LockOwner) -> LockOwner | None:
    """Take a directory's lock; return its owner if that is another process that lives."""
    path.mkdir(parents=True, exist_ok=True)
    lock, content = path / _FILE, json.dumps(asdict(own)).encode()
    for _ in range(_TRIES):
        if _create(lock, content):
            _held.add(path)
            return None
        try:
            found, age_s = read_bounded(lock, most_bytes=_MOST_BYTES), _age_s(lock)
        except FileNotFoundError:
            continue
        except PerseusError:
            return _UNKNOWN
        owner = _owner(found)
        if owner == own:
            _held.add(path)  # also where another program that this process ran before has locked it
            return None
        if owner is None and age_s < 1.0:
            time.sleep(_HALF_WRITTEN_S)
        elif _lives(owner, own, age_s) or not _take_away(lock, found):
            return owner or _UNKNOWN
    return _UNKNOWN


def _create(lock: Path, content: bytes) -> bool:
    try:
        with open(lock, "xb", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            file.write(content)
    except FileExistsError:
        return False
    except OSError:
        lock.unlink(missing_ok=True)
        raise
    return True


def _owner(content: bytes) -> LockOwner | None:
    """Return whom a lock's content names; None where it is damaged or still being written."""
    try:
        found = parse_json(content)
    except PerseusError:
        return None
    if not isinstance(found, dict):
        return None
    pid, started = found.get("pid"), found.get("started")
    if not isinstance(pid, int) or not isinstance(started, int) or min(pid, started) < 0:
        return None
    host, namespace = str(found.get("host")), str(found.get("namespace"))
    return LockOwner(host, pid, started, namespace) if (host + namespace).isprintable() else None


def _age_s(lock: Path) -> float:
    """A lock's age by the clock of its file system: the clocks of two hosts may differ by minutes."""
    probe = lock.with_name(f".{_FILE}.{secrets.token_hex(6)}")
    with probe.open("xb") as file:
        now_s = os.fstat(file.fileno()).st_mtime
    probe.unlink()
    return now_s - lock.stat().st_mtime


def _lives(owner: LockOwner | None, own: LockOwner, age_s: float) -> bool:
    if owner is None or not own.namespace or owner.namespace != own.namespace:
        return age_s < STALE_S
    if (started := _start_of(owner.pid)) is not None:
        return owner.started == started
    try:
        os.kill(owner.pid, 0)
    except OSError as error:  # /proc may not show a process of another user (its option hidepid)
        return isinstance(error, PermissionError)
    return False


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
    return lock.read_bytes() == json.dumps(asdict(_this_process())).encode()


def _this_process() -> LockOwner:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        namespace = ""
    return LockOwner(socket.gethostname(), os.getpid(), _start_of(os.getpid()) or 0, namespace)


def _start_of(pid: int) -> int | None:
    """Return when a process started, in clock ticks; None where it has ended or cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *numbers = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(numbers[_START_FIELD])
