"""The thread that leaves a rank's numbers for monitoring, now and then, in every way that was asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from queue import Empty

from perseus_ds.config import MetricsSettings
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.runtime.measure.threads import HostThreads, Threads
from perseus_ds.runtime.metrics.figures import RankMetrics
from perseus_ds.runtime.metrics.ledger import EnergyLedger
from perseus_ds.runtime.metrics.textfile import TextFile

_PATIENCE_S = 2.0
_COUNTED_S = 1.0  # what a kill loses is no more than was counted in that time
_HIGHEST_PORT = 65_535
_MOST_LINES = 8
_CHANGED = "during iteration"
"""Ends CPython's words where a collection changes under its reader: "dictionary changed size ..."."""

Say = Callable[[str], None]
End = Callable[[], None]


class Publisher:
    """Turns the figures over every ``every_s``, on a thread of its own. Whatever fails is one line.

    ``count`` is called before every turn, and at least once per second: it has the ledger note the energy.

    Cost: nothing on the training thread; about 1 ms each time on its own, half of it the file's rename.
    """

    def __init__(
        self,
        figures: RankMetrics,
        ledger: EnergyLedger,
        file: TextFile,
        *,
        every_s: float,
        say: Say,
        count: Callable[[], None] = lambda: None,
        threads: Threads | None = None,
    ) -> None:
        threads = threads or HostThreads()
        self._figures = figures
        self._ledger = ledger
        self._file = file
        self._every_s = every_s
        self._say = say
        self._count = count
        self._ends: list[End] = []
        self._said: set[str] = set()
        self._again = False
        self._stop = threads.queue(str)
        self._thread = threads.start(self._run, name="perseus-metrics")

    def begin(self, settings: MetricsSettings, *, local_rank: int) -> None:
        """Serve and send as well, where that is asked for; what cannot be is reported, and files go on."""
        ways = [
            self._served(settings.port + local_rank) if settings.port is not None else None,
            self._sent(settings.otlp) if settings.otlp is not None else None,
        ]
        self._ends += [end for end in ways if end is not None]

    def turn(self) -> None:
        """Add up, and write."""
        self._count()
        self._figures.turn()
        for line in (self._ledger.trouble(), self._file.write(self._figures.samples())):
            if line:
                self._say(f"metrics: {line}")

    def close(self) -> None:
        """End the thread, and leave what holds after the job."""
        self._stop.put("end")
        self._thread.join(_PATIENCE_S)
        for end in self._ends:
            end()
        self._ends.clear()

    def _run(self) -> None:
        waits = max(1, math.ceil(self._every_s / _COUNTED_S))
        act = self.turn
        for wait in itertools.count(1):
            self._guarded(act)
            act = self._count if wait % waits else self.turn
            try:
                self._stop.get(timeout=self._every_s / waits)
            except Empty:
                continue
            break
        self._guarded(self._leave)
        self._ledger.close()

    def _leave(self) -> None:
        self._count()
        self._figures.turn()
        if line := self._file.end(self._figures.samples()):
            self._say(f"metrics: {line}")

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

    def _served(self, port: int) -> End | None:
        from perseus_ds.runtime.metrics.endpoint import serve  # noqa: PLC0415  # an extra

        try:
            if port > _HIGHEST_PORT:
                raise ConfigError(f"perseus.metrics.port: there is no port {port}", hint="name a lower one")
            return serve(port, self._figures.samples, self._figures.labels)
        except PerseusError as error:
            self._say(f"metrics: {error}; files are written all the same")
        return None

    def _sent(self, address: str) -> End | None:
        from perseus_ds.runtime.metrics.otlp import send  # noqa: PLC0415  # an extra

        return send(self._figures.samples, self._figures.labels, every_s=self._every_s, address=address)
