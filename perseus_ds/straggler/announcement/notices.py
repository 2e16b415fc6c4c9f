"""What was announced from outside: a small file per slow pipeline, looked at once per iteration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PerseusError
from perseus_ds.files import check_folder, may_write, read_bounded
from perseus_ds.straggler.announcement.notice import Notice, pipeline_of

Signature = tuple[int, ...]
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """The slowdowns that hold now ([replicas], 1 where none), and lines about files that are ignored."""

    announced: NDArray[np.float64]
    complaints: tuple[str, ...] = ()


class Notices:
    """Read ``RUN_DIR/notices``.

    A file that is half written, wrong, or not the run directory's owner's changes nothing: it is logged
    once, and what held before holds on. A file that is gone holds no more. Nothing in the folder raises.
    """

    def __init__(self, folder: Path, *, replicas: int) -> None:
        self._folder = folder
        self._replicas = replicas
        self._seen: dict[str, Signature] = {}
        self._failed: dict[str, Signature] = {}
        self._announced: dict[str, float] = {}
        self._complaint = ""

    def poll(self) -> Heard:
        """Look for what is new.

        Cost: one listing of the folder and one stat per file; files are read when they have changed.
        """
        try:
            complaints = self._look()
        except FileNotFoundError:
            self._seen.clear()
            self._announced.clear()
            complaints = []
        except (OSError, PerseusError) as error:
            complaints = self._once(error)
        else:
            self._complaint = ""
        return Heard(self._vector(), tuple(complaints))

    def clear(self) -> None:
        """Remove all notices: they belong to a job that is over."""
        try:
            present = list(self._folder.iterdir())
        except OSError:
            return
        for path in present:
            if _speaks(path):
                _remove(path)

    def _look(self) -> list[str]:
        notices = {path.name: signature(path) for path in self._folder.iterdir() if _speaks(path)}
        for name in self._seen.keys() - notices.keys():
            self._seen.pop(name)
            self._announced.pop(name, None)
        for name in self._failed.keys() - notices.keys():
            self._failed.pop(name)
        fresh = [name for name, found in notices.items() if self._seen.get(name) != found]
        if not fresh:
            return []
        writers = may_write(self._folder.parent)
        check_folder(self._folder, writers)
        complaints = []
        for name in sorted(fresh):
            complaints += self._read(name, notices[name], writers)
        return complaints

    def _read(self, name: str, found: Signature, writers: frozenset[int]) -> list[str]:
        """Read a file that is new or has changed; where the file system fails, it is read again next time."""
        path = self._folder / name
        try:
            content = read_bounded(path, most_bytes=_MOST_BYTES, writers=writers)
            notice = Notice.parse(content)
            self._check_pipeline(name)
        except OSError as error:
            known, self._failed[name] = self._failed.get(name), found
            return [] if known == found else [f"{path}: {error.strerror}: not read so far"]
        except PerseusError as error:
            self._seen[name] = found
            return [f"{path} {error}: ignored"]
        self._seen[name] = found
        self._announced[name] = notice.slowdown
        return []

    def _check_pipeline(self, name: str) -> None:
        pipeline = pipeline_of(name)
        assert pipeline is not None
        if pipeline >= self._replicas:
            raise PerseusError(f"names pipeline {pipeline}, the job has 0 to {self._replicas - 1}")

    def _vector(self) -> NDArray[np.float64]:
        announced = np.ones(self._replicas)
        for name, slowdown in self._announced.items():
            announced[pipeline_of(name)] = slowdown
        return announced

    def _once(self, error: OSError | PerseusError) -> list[str]:
        reason = (error.strerror or "cannot be read") if isinstance(error, OSError) else str(error)
        complaint = f"{self._folder} {reason}: notices are ignored"
        if complaint == self._complaint:
            return []
        self._complaint = complaint
        return [complaint]


def _speaks(path: Path) -> bool:
    return pipeline_of(path.name) is not None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # somebody else's: the next job refuses or takes it as this one did


def signature(path: Path) -> Signature:
    """Return what changes when a file is replaced or written to; empty where it is gone."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_uid, found.st_mode)
