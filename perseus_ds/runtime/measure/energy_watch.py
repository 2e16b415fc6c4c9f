"""A thread that notes when the energy counter moves, and which clock is in force."""

from __future__ import annotations

import threading
from collections import deque
from functools import reduce
from operator import or_
from statistics import median

from perseus_ds.device import Achieved, Capabilities, Gpu
from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.profile import CounterTrace

_READS_PER_PERIOD = 2
_READS_PER_CLOCK_READ = 5
_KEPT = 100_000


class EnergyWatch:
    """Read the counter about twice per period, keep the changes, answer from them.

    The thread holds the interpreter for microseconds per read. A device without a counter is not watched.
    """

    def __init__(self, gpu: Gpu, able: Capabilities | None = None) -> None:
        self._gpu = gpu
        self._period_s = (able or gpu.capabilities()).counter_period_s
        self._changes: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._clocks: deque[tuple[float, Achieved]] = deque(maxlen=_KEPT)
        self._stop = threading.Event()
        self.error: PerseusError | None = None
        self._thread = threading.Thread(target=self._watch, name="perseus-energy", daemon=True)

    @property
    def watching(self) -> bool:
        """Whether there is a counter to watch."""
        return self._period_s is not None

    def start(self) -> None:
        """Begin to watch."""
        if self.watching:
            self._thread.start()

    def close(self) -> None:
        """Stop watching and wait for the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def trace(self, since_s: float) -> CounterTrace:
        """All changes since a moment, with the last one before it."""
        changes = list(self._changes)
        first = next((i for i, (time_s, _) in enumerate(changes) if time_s > since_s), len(changes))
        kept = changes[max(0, first - 1) :]
        return CounterTrace([t for t, _ in kept], [e for _, e in kept])

    def clock_between(self, start_s: float, end_s: float) -> tuple[int | None, int]:
        """The median clock read in a stretch of time, in MHz, and all event reasons seen in it."""
        seen = [achieved for time_s, achieved in list(self._clocks) if start_s <= time_s <= end_s]
        if not seen:
            return None, 0
        reasons = reduce(or_, (achieved.event_reasons for achieved in seen))
        return int(median(achieved.clock_mhz for achieved in seen)), int(reasons)

    def forget(self, before_s: float) -> None:
        """Drop all changes before a moment but the last one."""
        while len(self._changes) > 1 and self._changes[1][0] <= before_s:
            self._changes.popleft()
        while self._clocks and self._clocks[0][0] < before_s:
            self._clocks.popleft()

    def _watch(self) -> None:
        assert self._period_s is not None
        pause_s = self._gpu.wall_s(self._period_s / _READS_PER_PERIOD)
        last_j: float | None = None
        reads = 0
        try:
            while not self._stop.wait(pause_s):
                energy_j = self._gpu.energy_j()
                if last_j is not None and energy_j != last_j:
                    self._changes.append((self._gpu.now_s(), energy_j))
                last_j = energy_j
                reads += 1
                if reads % _READS_PER_CLOCK_READ == 0:
                    self._clocks.append((self._gpu.now_s(), self._gpu.achieved()))
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)
