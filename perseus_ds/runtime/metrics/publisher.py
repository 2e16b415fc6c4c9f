"""The thread that writes a rank's numbers to a file for monitoring, and serves them on a port if asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import Empty

from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.runtime.measure.threads import HostThreads, Threads
from perseus_ds.runtime.metrics.figures import RankMetrics
from perseus_ds.runtime.metrics.metric import MetricSample, lasting

_EVERY_S = 15.0
_PATIENCE_S = 2.0
_HIGHEST_PORT = 65_535
_MOST_LINES = 8
_CHANGED = "during iteration"
"""Ends CPython's words where a collection changes under its reader: "dictionary changed size ..."."""


class Publisher:
    """Writes ``path`` for node_exporter's textfile collector every 15 seconds, on a thread of its own.

    A file is always whole; after the job it has what still holds. Whatever fails is one line.
    """

    def __init__(
        self,
        figures: RankMetrics,
        path: Path,
        *,
        say: Callable[[str], None],
        threads: Threads | None = None,
    ) -> None:
        threads = threads or HostThreads()
        self._figures = figures
        self._path = path
        self._say = say
        self._end_serving: Callable[[], None] | None = None
        self._said: set[str] = set()
        self._again = self._failing = False
        self._stop = threads.queue(str)
        self._thread = threads.start(self._run, name="perseus-metrics")

    def serve(self, port: int) -> None:
        """Serve as well; what cannot be is reported, and the file goes on."""
        from perseus_ds.runtime.metrics.endpoint import serve  # noqa: PLC0415  # an extra

        try:
            if port > _HIGHEST_PORT:
                raise ConfigError(f"perseus.metrics.port: there is no port {port}", hint="name a lower one")
            self._end_serving = serve(port, self._figures.samples, self._figures.labels)
        except PerseusError as error:
            self._say(f"metrics: {error}; files are written all the same")

    def close(self) -> None:
        """End the thread, and leave what holds after the job."""
        self._stop.put("end")
        self._thread.join(_PATIENCE_S)
        if self._end_serving is not None:
            self._end_serving()
            self._end_serving = None

    def _run(self) -> None:
        ended = False
        while not ended:
            self._guarded(lambda: self._write(self._turned()))
            try:
                self._stop.get(timeout=_EVERY_S)
            except Empty:
                continue
            ended = True
        self._guarded(lambda: self._write(lasting(self._turned())))

    def _turned(self) -> list[MetricSample]:
        self._figures.turn()
        return self._figures.samples()

    def _write(self, samples: list[MetricSample]) -> None:
        """Replace the file; a disk that is full is reported once, and tried again."""
        from perseus_ds.runtime.metrics.endpoint import text_of  # noqa: PLC0415  # an extra

        failed = self._failing
        try:
            write_whole(self._path, text_of(samples, self._figures.labels))
        except (OSError, PerseusError) as error:
            self._failing = True
            if not failed:
                reason = getattr(error, "strerror", None) or str(error)
                self._say(f"metrics: {self._path} is not written: {reason}; training and tries go on")
        else:
            self._failing = False
            if failed:
                self._say(f"metrics: {self._path} is written again")

    def _guarded(self, act: Callable[[], None]) -> None:
        """Report each failure once. Another thread may change what is read: that is read again first."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # numbers for others are no reason to end anything
            changed = isinstance(error, RuntimeError) and _CHANGED in str(error)
            if self._again or not changed:
                self._say_once(f"metrics: {type(error).__name__}: {error}; training goes on")
            self._again = changed
        else:
            self._again = False

    def _say_once(self, line: str) -> None:
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            self._say(line)
