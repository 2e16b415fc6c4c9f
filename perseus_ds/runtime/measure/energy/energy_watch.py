"""Note when the energy counter moves, which clock is in force, and how warm the GPU is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from functools import reduce
from operator import itemgetter, or_
from queue import Empty
from statistics import fmean, median
from typing import Protocol, TypeVar

from perseus_ds.device import Achieved, Capabilities, Gpu
from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.profile import CounterTrace
from perseus_ds.profile.estimating.thermal import Reading
from perseus_ds.runtime.measure.energy.energy_source import EnergySource
from perseus_ds.runtime.measure.threads import HostThreads, Threads

_READS_PER_PERIOD = 2
_READS_PER_CLOCK_READ = 5
_KEPT = 100_000
_AWAY = 10.0  # periods
_LEAST_S = 0.02  # between two looks: some counters move every millisecond
_PATIENCE_S = 2.0  # for a look under way when the watch is closed: a driver may block for minutes
_LEAST_COUNTED = 100
_ABOUT = 0.05
_MORE_OFTEN = 0.8

T = TypeVar("T")

Look = Callable[[], None]
"""One look at the device."""

Repeat = Callable[[float, Look], Look]
"""Look again and again, every so many seconds of the device's time; returns what ends it."""
_LEAST_C, _MOST_C = 1.0, 125.0
_MOST_STEP_C = 30.0
"""Between two looks, a quarter of a second apart: a chip follows its power in seconds."""


class Noted(Protocol):
    """Whoever counts the energy of a whole job; must not raise."""

    def __call__(self, energy_j: float, /, *, anew: bool) -> None:
        """Take in a reading."""


class EnergyWatch:
    """Read the counter about twice per period, keep the changes, answer from them.

    A change is dated half-way between the look that saw it and the one before.

    ``repeat`` is what looks again and again: by itself a thread, which holds the interpreter for
    microseconds per look. A device without a counter (``period_s`` is None) is not watched. The first error
    ends the looks and is kept for the training thread. The counter is checked at the start (`EnergySource`).
    ``noted`` is called with every reading, and with whether its source counts from another start than before.
    ``troubles`` are what was reported of the counter.
    """

    def __init__(
        self,
        gpu: Gpu,
        able: Capabilities | None = None,
        *,
        repeat: Repeat | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._gpu = gpu
        self.period_s = _bounded_s(able or gpu.capabilities())
        self._source = EnergySource(gpu)
        self._threads: Threads = threads or HostThreads()
        self._changes: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._clocks: deque[tuple[float, Achieved]] = deque(maxlen=_KEPT)
        self.temperatures = Temperatures(gpu)
        self._repeat: Repeat = repeat or self._in_a_thread
        self._end: Look | None = None
        self._last_j: float | None = None
        self._looked_s = 0.0
        self._looks = 0
        self._unread_s: list[Callable[[], float]] = []
        self.troubles: list[str] = []
        self._first_change_s = self._last_change_s = 0.0
        self._counted = 0
        self.error: PerseusError | None = None
        self.noted: Noted | None = None

    @property
    def watching(self) -> bool:
        """Whether there is a counter to watch."""
        return self.period_s is not None

    @property
    def seen_period_s(self) -> float | None:
        """The period as it was seen over all changes, where that is about the one that is declared."""
        if self.period_s is None or self._counted < _LEAST_COUNTED:
            return self.period_s
        seen_s = (self._last_change_s - self._first_change_s) / (self._counted - 1)
        return seen_s if abs(seen_s / self.period_s - 1.0) < _ABOUT else self.period_s

    def start(self) -> None:
        """Begin to watch."""
        if self.period_s is not None:
            self._end = self._repeat(self.period_s / _READS_PER_PERIOD, self.look)

    def reckon(self, able: Capabilities) -> None:
        """Look more often, where the counter turned out to move more often than was declared."""
        period_s = _bounded_s(able)
        if self._end is not None and period_s is not None and period_s < _MORE_OFTEN * (self.period_s or 0.0):
            self.close()
            self.period_s = period_s
            self.start()

    @property
    def useless(self) -> str:
        """Explain why no energy can be measured, now and later; empty where it can."""
        if not self.watching:
            return "its GPU has no energy counter"
        return f"its energy counter {self._source.useless}" if self._source.useless else ""

    def trouble(self) -> str:
        """Report what is wrong with the counter, each once; empty where nothing is, or nothing new."""
        new = [one for one in self._source.reasons() if one not in self.troubles][:1]
        self.troubles += new
        return "".join(new)

    def close(self) -> None:
        """Stop watching; a look that the driver holds up is left behind."""
        if self._end is not None:
            self._end()
            self._end = None

    def look(self) -> None:
        """Note what the counter shows, and now and then the clock."""
        if self.error is not None:
            return
        try:
            restarts = self._source.restarts
            now_s, energy_j = self._source.read()
            anew = self._source.restarts > restarts
            if self.noted is not None:
                self.noted(energy_j, anew=anew)
            if anew or self._looked_away(now_s):
                self._changes.clear()
                self._last_j = None
            if self._last_j is not None and energy_j != self._last_j:
                self._last_change_s = (self._looked_s + now_s) / 2
                if not self._counted:
                    self._first_change_s = self._last_change_s
                self._counted += 1
                self._changes.append((self._last_change_s, energy_j))
            self._last_j, self._looked_s = energy_j, now_s
            self._looks += 1
            if self._looks % _READS_PER_CLOCK_READ == 0:
                self._clocks.append((now_s, self._gpu.achieved()))
                self.temperatures.look(now_s)
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)

    def _looked_away(self, now_s: float) -> bool:
        """Whether the driver, or the host, held a look up for so long that its change has no date."""
        return self._last_j is not None and now_s - self._looked_s > _AWAY * (self.period_s or 0.0)

    def trace(self, since_s: float) -> CounterTrace:
        """All changes since a moment, with the last one before it."""
        changes = list(self._changes)
        kept = changes[max(0, bisect_right(changes, since_s, key=itemgetter(0)) - 1) :]
        return CounterTrace([t for t, _ in kept], [e for _, e in kept])

    def clock_between(self, start_s: float, end_s: float) -> tuple[int | None, int]:
        """The median clock read in a stretch of time, in MHz, and all event reasons seen in it."""
        seen = [achieved for _, achieved in self.looks_between(start_s, end_s)]
        if not seen:
            return None, 0
        reasons = reduce(or_, (achieved.event_reasons for achieved in seen))
        return int(median(achieved.clock_mhz for achieved in seen)), int(reasons)

    @property
    def latest_clock_mhz(self) -> int | None:
        """The clock as it was read last."""
        return self._clocks[-1][1].clock_mhz if self._clocks else None

    def looks_between(self, start_s: float, end_s: float) -> list[tuple[float, Achieved]]:
        """All looks at the clock in a stretch of time."""
        return _between(self._clocks, start_s, end_s)

    def keep_for(self, unread_s: Callable[[], float]) -> None:
        """Keep for one who reads later all since ``unread_s()``, where what he has not read begins."""
        self._unread_s.append(unread_s)

    def forget(self, before_s: float) -> None:
        """Drop all changes before a moment but the last one, and none that somebody has yet to read."""
        before_s = min([before_s, *(unread_s() for unread_s in self._unread_s)])
        while len(self._changes) > 1 and self._changes[1][0] <= before_s:
            self._changes.popleft()
        while self._clocks and self._clocks[0][0] < before_s:
            self._clocks.popleft()
        self.temperatures.forget(before_s)

    def _in_a_thread(self, every_s: float, look: Look) -> Look:
        """Look from a thread, by the host's clock, until an error ends it."""
        stop = self._threads.queue(str)
        pause_s = self._gpu.wall_s(every_s)

        def watch() -> None:
            while self.error is None:
                try:
                    stop.get(timeout=pause_s)
                except Empty:
                    look()
                else:
                    return

        thread = self._threads.start(watch, name="perseus-energy")

        def end() -> None:
            stop.put("end")
            thread.join(_PATIENCE_S)

        return end


def _bounded_s(able: Capabilities) -> float | None:
    """The counter's period, where there is one, as far as anybody looks that often."""
    period_s = able.counter_period_s
    return None if period_s is None else max(period_s, _READS_PER_PERIOD * _LEAST_S)


def _between(rows: Iterable[tuple[float, T]], start_s: float, end_s: float) -> list[tuple[float, T]]:
    """Rows of a stretch of time, oldest first as they came; a copy, since a thread adds others."""
    kept = list(rows)
    first = bisect_left(kept, start_s, key=itemgetter(0))
    return kept[first : bisect_right(kept, end_s, lo=first, key=itemgetter(0))]


class Temperatures:
    """Keeps a sensor's readings until one cannot be; ``reason`` states why there are none from then on.

    A sensor is never worth an error: measuring goes on without it.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._readings: deque[Reading] = deque(maxlen=_KEPT)
        self.reason = ""

    def look(self, now_s: float) -> None:
        """Read once more."""
        if self.reason:
            return
        try:
            read_c = self._gpu.temperature_c()
        except Exception as error:  # noqa: BLE001  # whatever a sensor's driver does
            self._end(f"it cannot be read: {as_perseus_error(error).message}")
            return
        if read_c is None:
            self._end("this GPU shows none")
        elif not _LEAST_C <= read_c <= _MOST_C:
            self._end(f"its sensor reads {read_c:g} degrees C")
        elif self._readings and abs(read_c - self._readings[-1][1]) > _MOST_STEP_C:
            self._end(f"its sensor jumped from {self._readings[-1][1]:g} to {read_c:g} degrees C")
        else:
            self._readings.append((now_s, read_c))

    def mean_c(self, start_s: float, end_s: float) -> float | None:
        """The mean of a stretch of time; None where nothing was read in it."""
        read = [read_c for _, read_c in self.between(start_s, end_s)]
        return fmean(read) if read else None

    def between(self, start_s: float, end_s: float) -> list[Reading]:
        """All readings of a stretch of time."""
        return _between(self._readings, start_s, end_s)

    def forget(self, before_s: float) -> None:
        """Drop readings before a moment."""
        while self._readings and self._readings[0][0] < before_s:
            self._readings.popleft()

    def _end(self, reason: str) -> None:
        self.reason = reason
        self._readings.clear()
