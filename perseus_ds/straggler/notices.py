"""Notices to a running job: a slow pipeline, or a power cap; a small JSON file each in ``RUN_DIR/notices``.

`notify` writes them. Rank 0 of the job reads them with `Notices` and informs the other ranks.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PerseusError
from perseus_ds.files import is_whole, parse_json, read_bounded
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory, write_json
from perseus_ds.run_directory.records import read_places

POWER_CAP_FILE = "power_cap.json"
_NAME = re.compile(r"pipeline_(0|[1-9][0-9]{0,8})\.json|power_cap\.json")
_MOST_BYTES = 4096
_LAST_PID = 1 << 22  # linux/threads.h
_RANGES = {"slowdown": (1.0, 1e6), "power_w": (1e-3, 1e9), "until": (0.0, 1e11)}
_OVER = {"ended": "its job has ended", "disabled": "its job has switched perseus off"}


def _parse(content: object, *, key: str) -> tuple[float, float | None]:
    """Read ``key`` and until when it holds, in seconds since 1970 (None: until its file is removed).

    Other keys are ignored. A `PerseusError` names the key that is missing or wrong.
    """
    if not isinstance(content, dict) or key not in content:
        raise PerseusError(f"has no {key!r}")
    return _number(content, key), _until_s(content)


@dataclass(frozen=True, slots=True, eq=False)
class Announced:
    """The notices that hold now, and one line for each file that is ignored.

    Shape: ``slowdown`` [replicas], 1 for a replica that is not announced to be slow.
    """

    slowdown: NDArray[np.float64]
    power_w: float | None = None
    warnings: tuple[str, ...] = ()


class Notices:
    """Reads ``RUN_DIR/notices``.

    A file that is half written or wrong changes nothing: it is logged once, and what held before holds on. A
    file that is gone holds no more. Nothing in the folder raises.
    """

    def __init__(self, folder: Path, *, replicas: int) -> None:
        self._folder = folder
        self._replicas = replicas
        self._seen: dict[str, tuple[int, ...]] = {}
        self._notices: dict[str, tuple[float, float | None]] = {}
        self._warnings: dict[str, str] = {}

    def poll(self) -> Announced:
        """Read what is new, and return what holds now.

        Cost: one listing of the folder and one stat per file; files are read when they have changed.
        """
        before = dict(self._warnings)
        try:
            found = {path.name: _signature(path) for path in self._folder.iterdir()}
        except FileNotFoundError:
            found = {}
        except OSError as error:
            self._warnings[""] = f"{self._folder}: {error.strerror}: notices are ignored"
            found = self._seen
        else:
            self._warnings.pop("", None)
        found = {name: signature for name, signature in found.items() if signature and _NAME.fullmatch(name)}
        for known in (self._seen, self._notices, self._warnings):
            for name in known.keys() - found.keys() - {""}:
                del known[name]
        for name in sorted(name for name in found if self._seen.get(name) != found[name]):
            self._read(name, found[name])
        return self._combine(tuple(line for name, line in self._warnings.items() if before.get(name) != line))

    def clear(self) -> None:
        """Remove all notices, but for somebody else's: the next job takes these as this one did."""
        with suppress(OSError):
            for path in list(self._folder.iterdir()):
                if _NAME.fullmatch(path.name):
                    with suppress(OSError):
                        path.unlink(missing_ok=True)

    def _read(self, name: str, signature: tuple[int, ...]) -> None:
        """Read a file that is new or has changed; where the file system fails, it is read again next time."""
        path = self._folder / name
        try:
            content = parse_json(read_bounded(path, most_bytes=_MOST_BYTES))
            notice = _parse(content, key="power_w" if name == POWER_CAP_FILE else "slowdown")
        except OSError as error:
            self._warnings[name] = f"{path}: {error.strerror}: not read so far"
            return
        except PerseusError as error:
            self._seen[name], self._warnings[name] = signature, f"{path} {error}: ignored"
            return
        self._seen[name] = signature
        if name != POWER_CAP_FILE and (pipeline := _pipeline_of(name)) >= self._replicas:
            has = f"the job has 0 to {self._replicas - 1}"
            self._warnings[name] = f"{path} names pipeline {pipeline}, {has}: ignored"
            return
        self._warnings.pop(name, None)
        self._notices[name] = notice

    def _combine(self, warnings: tuple[str, ...]) -> Announced:
        now_s, slowdown, power_w = time.time(), np.ones(self._replicas), None
        for name, (value, until_s) in self._notices.items():
            if until_s is not None and now_s >= until_s:
                continue
            if name == POWER_CAP_FILE:
                power_w = value
            else:
                slowdown[_pipeline_of(name)] = value
        return Announced(slowdown, power_w, warnings)


def notify(
    run_dir: str | Path,
    *,
    pipeline: int | None = None,
    host: str | None = None,
    slowdown: float | None = None,
    power_w: float | None = None,
    until_s: float | None = None,
    clear: bool = False,
) -> list[Path]:
    """Write notices for a running job, which follows within two iterations; return their files.

    ``slowdown`` is for one pipeline, or for every pipeline with a GPU on ``host``; 1 ends it. ``power_w`` is
    for the whole job. ``clear`` removes all notices.

    Raises:
        OSError: a file cannot be written.
        PerseusError: a bad number, no such pipeline or host, or no running job that would follow.
    """
    directory = RunDirectory(Path(run_dir))
    attached = _running_job(directory)
    if clear:
        if any(one is not None for one in (pipeline, host, slowdown, power_w, until_s)):
            raise PerseusError("clear ends all notices", hint="a slowdown of 1 ends one")
        Notices(directory.notices, replicas=0).clear()
        return []
    written = {"slowdown": slowdown, "power_w": power_w, "until": until_s}
    if (slowdown is None) == (power_w is None) or (slowdown is None and (pipeline, host) != (None, None)):
        raise PerseusError("a notice is a slowdown of a pipeline or a host, or a power cap of the job")
    if slowdown is not None:
        _parse(written, key="slowdown")
        names = [f"pipeline_{one}.json" for one in _slow_pipelines(directory, attached, pipeline, host)]
    else:
        _parse(written, key="power_w")
        names = [POWER_CAP_FILE]
    if until_s is not None and until_s <= time.time():
        raise PerseusError("`until` is over already", hint="name a later time")
    if attached.get("start") == "observe":
        raise PerseusError(f"{directory.path}: its job only observes, a notice would change nothing")
    paths = [directory.notices / name for name in names]
    for path in paths:
        if slowdown == 1.0:
            path.unlink(missing_ok=True)
        else:
            write_json(path, {key: value for key, value in written.items() if value is not None})
    return paths


def _slow_pipelines(
    directory: RunDirectory, attached: Mapping[str, object], pipeline: int | None, host: str | None
) -> list[int]:
    """Return the pipelines that a slowdown is for, or refuse it."""
    if is_whole(pipelines := attached.get("replicas"), 1, 1):
        raise PerseusError(f"{directory.path}: its job has one pipeline and nobody waits for it")
    if attached.get("stragglers") is False:
        raise PerseusError(f"{directory.path}: its job has straggler.enabled false")
    if (pipeline is None) == (host is None):
        raise PerseusError("a slowdown needs a pipeline or a host")
    if pipeline is not None:
        if pipeline < 0 or is_whole(pipelines, 1, pipeline):
            raise PerseusError(f"pipeline {pipeline} does not exist: the job has {pipelines}, counted from 0")
        return [pipeline]
    places = read_places(directory.places)
    if found := sorted({place.pipeline for place in places if place.host == host}):
        return found
    known = ", ".join(sorted({place.host for place in places})[:8])
    raise PerseusError(f"the job has no GPU on host {host!r:.80}", hint=f"its hosts are {known}")


def _running_job(directory: RunDirectory) -> Mapping[str, object]:
    """Return the journal's event of the job that runs now, or raise that there is none."""
    if not directory.events.is_file():
        what = f"{directory.path} is not a run directory: it has no {directory.events.name}"
        raise PerseusError(what, hint="give the run_dir of a job that runs")
    attached: Mapping[str, object] | None = None
    over = None
    for event in read_events(directory.events):
        name = str(event.get("event"))
        if name == "attached":
            attached, over = event, None
        over = _OVER.get(name, over)
    if attached is None:
        raise PerseusError(f"{directory.path}: no job has started here yet")
    pid = attached.get("pid")
    if attached.get("host") == socket.gethostname() and is_whole(pid, 1, _LAST_PID):  # elsewhere not seen
        try:
            os.kill(pid, 0)
        except OSError as error:
            over = over or (None if isinstance(error, PermissionError) else "its job has died")
    if over is not None:
        raise PerseusError(f"{directory.path}: {over}, nobody would receive it")
    return attached


def _number(content: Mapping[str, object], key: str) -> float:
    value, (least, most) = content[key], _RANGES[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise PerseusError(f"{key} is {value!r:.40}", hint=f"expected a number, {least:g} to {most:g}")
    return float(value)


def _until_s(content: Mapping[str, object]) -> float | None:
    """Read ``until``: seconds since 1970, or ISO 8601 with its time zone."""
    value = content.get("until")
    if not isinstance(value, str):
        return None if value is None else _number(content, "until")
    with suppress(ValueError):
        if (moment := datetime.fromisoformat(value)).tzinfo is not None:
            return moment.timestamp()
    hint = "expected a time like 2030-01-31T18:00:00+01:00, or seconds since 1970"
    raise PerseusError(f"until is {value!r:.40}", hint=hint)


def _pipeline_of(name: str) -> int:
    return int(name.removeprefix("pipeline_").removesuffix(".json"))


def _signature(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written to; empty where it is gone."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_uid, found.st_mode)
