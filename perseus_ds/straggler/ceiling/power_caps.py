"""All ceilings that are set for a job: files of its notices, a site's file or socket; the lowest holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import check_folder, may_write, read_bounded
from perseus_ds.straggler.announcement.notices import Signature, signature
from perseus_ds.straggler.ceiling.cap_socket import CapSocket
from perseus_ds.straggler.ceiling.power_cap import PowerCap

CAP_FILE = "power_cap.json"
_NAME = re.compile(r"power_cap(\.[A-Za-z0-9_-]{1,64})?\.json")
_MOST_BYTES = 4096
SOCKET = "unix:"
"""What a site's ceiling begins with where it is a socket and no file."""


class CapTimeline:
    """What one controller set, by the time of day: what holds, and what follows it from a moment on."""

    def __init__(self) -> None:
        self._present: PowerCap | None = None
        self._following: PowerCap | None = None

    def take(self, cap: PowerCap | None, now_s: float) -> None:
        """Take what was set last; None withdraws all."""
        if cap is not None and cap.start_s is not None and cap.start_s > now_s:
            self._following = cap
        else:
            self._present, self._following = cap, None

    def at(self, now_s: float) -> PowerCap | None:
        """Return what holds now; None where nothing does."""
        following = self._following
        if following is not None and following.start_s is not None and now_s >= following.start_s:
            self._present, self._following = following, None
        present = self._present
        if present is None or present.power_cap_w is None:
            return None
        return None if present.until_s is not None and now_s >= present.until_s else present


@dataclass(frozen=True, slots=True)
class Standing:
    """The ceiling that holds now, where it comes from, and lines about what is wrong with others."""

    cap: PowerCap | None = None
    source: str = ""
    complaints: tuple[str, ...] = ()


class PowerCaps:
    """Read ``RUN_DIR/notices/power_cap*.json`` and what a site names (a file, or ``unix:`` and a socket).

    What is half written, wrong, or of somebody who is not believed changes nothing: it is logged once, and
    what held before holds on. A file that is gone holds no more; a socket that is silent does. ``pipelines``
    is how many share a ceiling of the whole job. Nothing here raises.
    """

    def __init__(self, folder: Path, site: str | None = None, *, pipelines: int = 1) -> None:
        self._folder = folder
        self._pipelines = pipelines
        self._files: dict[Path, _CapFile] = {}
        self._site = None if site is None or site.startswith(SOCKET) else Path(site)
        self._socket = CapSocket(Path(site.removeprefix(SOCKET))) if site and self._site is None else None
        self._from_socket = CapTimeline()
        self._disagreement = ""

    def poll(self, now_s: float) -> Standing:
        """Look for what is new; ``now_s`` is seconds since 1970.

        Cost: one listing of the folder and one stat per file; files are read when they have changed.
        """
        complaints: list[str] = []
        found = list(self._from_files(now_s, complaints))
        if self._socket is not None:
            for line in self._socket.lines(complaints):
                self._take_line(line, now_s, complaints)
            if (cap := self._from_socket.at(now_s)) is not None:
                found.append((cap, str(self._socket)))
        found.sort(key=lambda one: self._pipeline_w(one[0]))
        complaints += self._disagreeing(found)
        cap, source = found[0] if found else (None, "")
        return Standing(cap, source, tuple(complaints))

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()

    def clear(self) -> None:
        """Remove the notices' ceilings: they were for a job that is over."""
        for path in self._present():
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # somebody else's: the next job judges it anew

    def _present(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        except OSError:
            return []

    def _from_files(self, now_s: float, complaints: list[str]) -> Iterable[tuple[PowerCap, str]]:
        paths = [*self._present(), *([self._site] if self._site is not None else [])]
        for path in self._files.keys() - set(paths):
            del self._files[path]
        for path in sorted(paths):
            writers = self._site_writers if path == self._site else self._writers
            file = self._files.setdefault(path, _CapFile(path, writers))
            complaints += file.look(now_s)
            if (cap := file.timeline.at(now_s)) is not None:
                yield cap, str(path)

    def _writers(self) -> frozenset[int]:
        writers = may_write(self._folder.parent)
        check_folder(self._folder, writers)
        return writers

    def _site_writers(self) -> frozenset[int]:
        assert self._site is not None
        return may_write(self._site.parent)

    def _take_line(self, line: bytes, now_s: float, complaints: list[str]) -> None:
        try:
            self._from_socket.take(PowerCap.parse(line), now_s)
        except PerseusError as error:
            complaints.append(f"{self._socket} {error}: ignored, what held before holds on")

    def _pipeline_w(self, cap: PowerCap) -> float:
        assert cap.power_cap_w is not None
        return cap.power_cap_w / (self._pipelines if cap.per == "job" else 1)

    def _disagreeing(self, found: list[tuple[PowerCap, str]]) -> list[str]:
        """One line when controllers come to disagree; the lowest is first."""
        told = ""
        if any(self._pipeline_w(cap) > self._pipeline_w(found[0][0]) for cap, _ in found):
            told = ", ".join(f"{cap.power_cap_w:g} W per {cap.per} by {source}" for cap, source in found)
        before, self._disagreement = self._disagreement, told
        if told in {"", before}:
            return []
        return [f"power ceilings disagree, the lowest holds: {told}"]


class _CapFile:
    """One file, read again when it has changed; ``writers`` are those who are believed."""

    def __init__(self, path: Path, writers: Callable[[], frozenset[int]]) -> None:
        self._path = path
        self._writers = writers
        self._seen: Signature | None = None
        self._failed: Signature | None = None
        self.timeline = CapTimeline()

    def look(self, now_s: float) -> list[str]:
        """Read the file where it is another one than before; return what is wrong with it."""
        found = signature(self._path)
        if found == self._seen:
            return []
        try:
            content = (
                read_bounded(self._path, most_bytes=_MOST_BYTES, writers=self._writers()) if found else b""
            )
        except (OSError, PerseusError) as error:  # read again next time
            known, self._failed = self._failed, found
            reason = f": {error.strerror}" if isinstance(error, OSError) else f" {error}"
            told = f"{self._path}{reason}: not read so far, what held before holds on"
            return [] if known == found else [told]
        self._seen, self._failed = found, None
        try:
            self.timeline.take(PowerCap.parse(content) if found else None, now_s)
        except PerseusError as error:
            return [f"{self._path} {error}: ignored, what held before holds on"]
        return []
