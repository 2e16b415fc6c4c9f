"""Note when the energy counter moves, which clock is in force, and how warm the GPU is."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import reduce
from operator import itemgetter, or_
from queue import Empty
from statistics import median

from perseus_ds.device.gpu import Achieved, Capabilities, Gpu
from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.profile import CounterTrace
from perseus_ds.runtime.measure.energy.gpu_reader import GpuReader, GpuReading
from perseus_ds.runtime.measure.energy.kept_readings import KEPT, Temperatures, between
from perseus_ds.runtime.measure.energy.reading_process import ReadingProcess
from perseus_ds.runtime.measure.threads import HostThreads, Threads

_READS_PER_PERIOD = 2
_AWAY = 10.0  # periods
_LEAST_S = 0.02  # between two looks: some counters move every millisecond
_PATIENCE_S = 2.0  # for a look under way when the watch is closed: a driver may block for minutes
_LEAST_COUNTED = 100
_ABOUT = 0.05
_MORE_OFTEN = 0.8

Look = Callable[[], None]
"""One look at the device."""

Repeat = Callable[[float, Look], Look]
"""Look again and again, every so many seconds of the device's time; returns what ends it."""
_IN_A_THREAD = "no process reads its energy ({}): a thread of the training does"


class EnergyWatch:
    """Look at the counter about twice per period, keep the changes, answer from them.

    A change is dated half-way between the look that saw it and the one before.

    A GPU that other processes can open too is looked at by a process of its own (`ReadingProcess`): every
    question here takes in first what that has seen. Else a thread looks, or whatever ``repeat`` is, which
    looks again and again. A device without a counter (``period_s`` is None) is not watched. The first error
    ends the looks and is kept for the training thread. The counter is checked at the start (`EnergySource`).
    ``taken_j`` is the energy that the counter has shown since the start. ``troubles`` are what was reported.
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
        self._reader = GpuReader(gpu)
        self._threads: Threads = threads or HostThreads()
        self._changes: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._clocks: deque[tuple[float, Achieved]] = deque(maxlen=KEPT)
        self._temperatures = Temperatures()
        self._repeat: Repeat | None = repeat
        self._end: Look | None = None
        self._process: ReadingProcess | None = None
        self._catching_up = threading.Lock()
        self._last: GpuReading | None = None
        self._begins_anew = False
        self.taken_j = 0.0
        self.troubles: list[str] = []
        self._replaced: list[str] = []
        self._first_change_s = self._last_change_s = 0.0
        self._counted = 0
        self._error: PerseusError | None = None

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
        if self.period_s is None:
            return
        every_s = self.period_s / _READS_PER_PERIOD
        opened = self._gpu.opened_elsewhere() if self._repeat is None else None
        if opened is not None:
            try:
                self._process = ReadingProcess(*opened, every_s)
            except OSError as error:
                self._replaced.append(_IN_A_THREAD.format(error))
        if self._process is None:
            self._end = (self._repeat or self._in_a_thread)(every_s, self.look)

    def reckon(self, able: Capabilities) -> None:
        """Look more often, where the counter turned out to move more often than was declared."""
        period_s = _bounded_s(able)
        if period_s is None or period_s >= _MORE_OFTEN * (self.period_s or 0.0):
            return
        if self._process is not None:
            self.period_s = period_s
            self._process.look_every(period_s / _READS_PER_PERIOD)
        elif self._end is not None:
            self.close()
            self.period_s = period_s
            self.start()

    @property
    def useless(self) -> str:
        """Explain why no energy can be measured, now and later; empty where it can."""
        if not self.watching:
            return "its GPU has no energy counter"
        useless = self._last.useless if self._last else ""
        return f"its energy counter {useless}" if useless else ""

    @property
    def error(self) -> PerseusError | None:
        """The first error of a look, after which there are none."""
        self.catch_up()
        return self._error

    def trouble(self) -> str:
        """Report what is wrong with the counter, each once; empty where nothing is, or nothing new."""
        self.catch_up()
        reasons = [*self._replaced, *(self._last.reasons if self._last else ())]
        new = [one for one in reasons if one not in self.troubles][:1]
        self.troubles += new
        return "".join(new)

    def close(self) -> None:
        """Stop watching; a look that the driver holds up is left behind."""
        with self._catching_up:
            process, self._process = self._process, None
        if process is not None:
            process.close()
        if self._end is not None:
            self._end()
            self._end = None

    def look(self) -> None:
        """Look once, from here."""
        if self._error is not None:
            return
        try:
            seen = self._reader.look()
            if self._begins_anew:
                seen, self._begins_anew = seen._replace(anew=True), False
            self._note(seen)
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self._error = as_perseus_error(error)

    def catch_up(self) -> None:
        """Take in what the reading process has seen; from any thread, one at a time."""
        if self._process is None or not self._catching_up.acquire(blocking=False):
            return
        try:
            self._take_from(self._process)
        finally:
            self._catching_up.release()

    def _take_from(self, process: ReadingProcess | None) -> None:
        if process is None:  # another thread was quicker
            return
        for seen in process.take():
            self._note(seen)
        self._error = self._error or process.error
        if process.ended and self._error is None:
            self._go_on_here(process)

    def _go_on_here(self, process: ReadingProcess) -> None:
        """Look from a thread in place of a process that has ended before its time."""
        self._replaced.append(_IN_A_THREAD.format(process.ended))
        process.close()
        self._process, self._begins_anew = None, True
        self._end = self._in_a_thread((self.period_s or 0.0) / _READS_PER_PERIOD, self.look)

    def _note(self, seen: GpuReading) -> None:
        last = self._last
        if last is not None and not seen.anew:
            self.taken_j += max(0.0, seen.energy_j - last.energy_j)
        if seen.anew or self._looked_away(seen.at_s):
            self._changes.clear()
        elif last is not None and seen.energy_j != last.energy_j:
            self._last_change_s = (last.at_s + seen.at_s) / 2
            if not self._counted:
                self._first_change_s = self._last_change_s
            self._counted += 1
            self._changes.append((self._last_change_s, seen.energy_j))
        self._last = seen
        if seen.achieved is not None:
            self._clocks.append((seen.at_s, seen.achieved))
        if seen.temperature_c is not None:
            self._temperatures.note(seen.at_s, seen.temperature_c)

    def _looked_away(self, now_s: float) -> bool:
        """Whether the driver, or the host, held a look up for so long that its change has no date."""
        return self._last is not None and now_s - self._last.at_s > _AWAY * (self.period_s or 0.0)

    @property
    def temperatures(self) -> Temperatures:
        """What the GPU's sensor has shown."""
        self.catch_up()
        return self._temperatures

    def trace(self, since_s: float) -> CounterTrace:
        """All changes since a moment, with the last one before it."""
        self.catch_up()
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
        self.catch_up()
        return between(self._clocks, start_s, end_s)

    def forget(self, before_s: float) -> None:
        """Drop all changes before a moment but the last one."""
        while len(self._changes) > 1 and self._changes[1][0] <= before_s:
            self._changes.popleft()
        while self._clocks and self._clocks[0][0] < before_s:
            self._clocks.popleft()
        self._temperatures.forget(before_s)

    def _in_a_thread(self, every_s: float, look: Look) -> Look:
        """Look from a thread, by the host's clock, until an error ends it."""
        stop = self._threads.queue(str)
        pause_s = self._gpu.wall_s(every_s)

        def watch() -> None:
            while self._error is None:
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
