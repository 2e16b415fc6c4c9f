"""Announce that a pipeline of a running job has become slow, or has recovered."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import check_folder, may_write, write_trusted
from perseus_ds.files.fields import whole
from perseus_ds.run_directory import RunDirectory, read_events
from perseus_ds.straggler.announcement.notice import Notice, checked_slowdown, file_name

_MOST = 2**31 - 1  # a process's number
_OVER = {"ended": "its job has ended", "disabled": "its job has switched perseus off"}


@dataclass(frozen=True, slots=True)
class Announced:
    """What was done: ``slowdown`` 1 where an announcement was withdrawn; None: not known."""

    path: Path
    pipeline: int
    slowdown: float
    pipelines: int | None


def notify(run_dir: str | Path, *, pipeline: int, slowdown: float, reason: str = "") -> Announced:
    """Announce that one pipeline (data-parallel replica) takes ``slowdown`` times as long; 1 ends it.

    The job takes it within two iterations. It is believed if the run directory's owner or root wrote it.

    Raises:
        OSError: the file cannot be written.
        PerseusError: a bad number, no such pipeline, no running job, or a user who is not believed.
    """
    notice = Notice(checked_slowdown(slowdown), reason)
    directory = RunDirectory(Path(run_dir))
    pipelines = _pipelines(directory)
    _check_pipeline(pipeline, pipelines)
    path = leave(directory, file_name(pipeline), notice.to_json() if notice.slowdown > 1.0 else None)
    return Announced(path, pipeline, notice.slowdown, pipelines)


def leave(directory: RunDirectory, name: str, content: str | None) -> Path:
    """Put a notice into a job's folder in one step, or remove it (None); return its path.

    Raises:
        OSError: it cannot be written.
        PerseusError: the job would not believe this user.
    """
    _check_writer(directory)
    path = directory.notices / name
    if content is None:
        path.unlink(missing_ok=True)
        return path
    directory.notices.mkdir(mode=0o755, exist_ok=True)
    check_folder(directory.notices, may_write(directory.path))
    write_trusted(path, content)
    return path


def _pipelines(directory: RunDirectory) -> int | None:
    """How many pipelines the running job has, by its journal; None where it does not state it.

    Raises:
        PerseusError: no run directory, or no job that listens.
    """
    attached = running_job(directory)
    deaf = _deaf(attached)
    if deaf is not None:
        raise PerseusError(f"{directory.path}: {deaf}, a notice would change nothing")
    return _count(attached, "replicas")


def running_job(directory: RunDirectory) -> Mapping[str, object]:
    """Return the journal's event of the job that runs now.

    Raises:
        PerseusError: no run directory, or no job that runs.
    """
    if not directory.events.is_file():
        raise PerseusError(
            f"{directory.path} is not a run directory: it has no {directory.events.name}",
            hint="give the run_dir of a job that runs",
        )
    attached: Mapping[str, object] | None = None
    over = None
    for event in read_events(directory.events):
        name = str(event.get("event"))
        if name == "attached":
            attached, over = event, None
        over = _OVER.get(name, over)
    if attached is None:
        raise PerseusError(f"{directory.path}: no job has started here yet")
    if over is not None or not _alive(attached):
        raise PerseusError(f"{directory.path}: {over or 'its job has died'}, nobody would receive it")
    return attached


def _deaf(attached: Mapping[str, object]) -> str | None:
    """Why a job that runs does not answer stragglers; None where it does."""
    if _count(attached, "replicas") == 1:
        return "its job has one pipeline and nobody waits for it"
    if attached.get("start") == "observe":
        return "its job only observes"
    if attached.get("stragglers") is False:
        return "its job has straggler.enabled false"
    return None


def _alive(attached: Mapping[str, object]) -> bool:
    """Whether rank 0 may still be there; no other host's processes can be seen from here."""
    pid = _count(attached, "pid")
    if attached.get("host") != socket.gethostname() or pid is None:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _count(attached: Mapping[str, object], key: str) -> int | None:
    """A number of the journal; None where it has none that a process or a pipeline can have."""
    try:
        return whole(attached, key, least=1, most=_MOST)
    except PerseusError:
        return None


def _check_pipeline(pipeline: int, pipelines: int | None) -> None:
    if pipeline < 0:
        raise PerseusError(f"pipeline {pipeline} does not exist", hint="pipelines count from 0")
    if pipelines is not None and pipeline >= pipelines:
        raise PerseusError(f"pipeline {pipeline} does not exist: the job has 0 to {pipelines - 1}")


def _check_writer(directory: RunDirectory) -> None:
    if os.geteuid() not in may_write(directory.path):
        owner = directory.path.stat().st_uid
        raise PerseusError(
            f"{directory.path} belongs to user {owner}: the job believes only them and root",
            hint=f"run this as user {owner}",
        )
