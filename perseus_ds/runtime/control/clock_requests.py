"""Ask for clocks from the training thread without ever waiting: each at its moment of the device's time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perseus_ds.device.clock_agenda import AskedClocks, DatedClock, DatedClocks, RequestCounts
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.runtime.control.errands import Errand, VirtualErrands
from perseus_ds.runtime.control.local_clocks import HostAlarm, LocalClocks
from perseus_ds.runtime.recorder import Moment
from perseus_ds.runtime.threads import HostThreads, Queue, Threads

_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Ask:
    """Clocks to ask for some device seconds after a moment (None: the device's own choice)."""

    clock_mhz: int | None
    delay_s: float = 0.0
    memory_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """All that is asked for at one point of the stream.

    ``moment`` is that point, which the device reaches later than the host; None where the host is the
    device, and ``issued_s`` is when.
    """

    asks: tuple[Ask, ...]
    issued_s: float
    moment: Moment | None = None


class Requests(Protocol):
    """Whoever brings requests to the device; the first error is kept for the training thread to find."""

    error: PerseusError | None

    @property
    def counts(self) -> RequestCounts:
        """What became of all requests so far."""

    @property
    def stored(self) -> bool:
        """Whether no higher clock is overdue, as far as is known here."""

    def put(self, request: Request) -> None:
        """Hand a request over; never blocks."""

    def close(self) -> None:
        """Give the clock back to the device."""


class ClockRequests:
    """Give every request its moment in device time, and hand it to whoever asks the device.

    The host runs ahead of the device, so a thread waits for each point of the stream in turn. A request is
    due at the moment when the device was there, plus its delay, however late the thread woke. A device with a
    ``virtual`` time needs no thread: its host is the device. A guard asks at each moment from a process of
    its own; without one `LocalClocks` does, by an alarm. The first error is kept for the training thread to
    find at its next iteration; after it nothing is asked for any more.
    """

    def __init__(
        self,
        gpu: Gpu,
        virtual: VirtualTime | None = None,
        *,
        threads: Threads | None = None,
        enter: Callable[[], None] = lambda: None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._threads = threads = threads or HostThreads()
        self._gpu = gpu
        self._enter = enter
        self._patience_s = patience_s
        self._closing = False
        self._handed = self._reached = 0
        self._clocks: DatedClocks | LocalClocks
        self._clocks = gpu.dated_clocks() or LocalClocks(gpu, virtual or HostAlarm(gpu, threads))
        self.error: PerseusError | None = None
        self.asked = AskedClocks()
        self._queue: Queue[object] | None = None
        self._errands = None if virtual is None else VirtualErrands(virtual)
        if virtual is None:
            self._queue = threads.queue(object)
            self._thread = threads.start(self._follow, name="perseus-clocks")

    @property
    def counts(self) -> RequestCounts:
        """What became of all requests so far."""
        return self._clocks.counts

    def expect(self, latency_s: float) -> None:
        """Note how long a change of clock takes, and so when a higher one is overdue."""
        if isinstance(self._clocks, LocalClocks):
            self._clocks.expect(latency_s)

    @property
    def stored(self) -> bool:
        """Whether no higher clock is overdue, as far as is known here; a guard reports it by its device."""
        return self._clocks.look() if isinstance(self._clocks, LocalClocks) else True

    def put(self, request: Request) -> None:
        """Hand a request over.

        Cost: about a microsecond; never blocks.
        """
        if self._queue is None:
            self._reach(request)
        else:
            self._handed += 1
            self._queue.put(request)

    def run(self, errand: Errand) -> None:
        """Do something at the device in steps, after what was asked for so far; never blocks."""
        if self._errands is not None:
            self._errands.put(errand)
        elif self._queue is not None:
            self._queue.put(errand)

    def stop(self, errand: Errand) -> None:
        """Have an errand end before its next step; never blocks."""
        errand.stop()
        if self._errands is not None:
            self._errands.stop(errand)

    def close(self) -> None:
        """Give the clock back to the device and end the thread; what still waits is dropped.

        A device that hangs is not waited for: closing the device itself is then what restores the clock.
        """
        self._closing = True
        if self._errands is not None:
            self._errands.close()
        if self._queue is None:
            self._give_back()
        else:
            self._queue.put(None)
            self._thread.join(self._patience_s)

    def _follow(self) -> None:
        """Serve one request after the other, in the order of the stream."""
        try:
            self._enter()
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)
        assert self._queue is not None
        while (wanted := self._queue.get()) is not None:
            if isinstance(wanted, Request):
                self._reached += 1
                self._reach(wanted)
            elif isinstance(wanted, Errand):
                self._carry_out(wanted)
        self._give_back()

    def _carry_out(self, errand: Errand) -> None:
        """Do all steps of an errand, or what puts back what the first of them did."""
        try:
            while True:
                if self._closing or self.error is not None:
                    errand.stop()
                pause_s = errand.go_on()
                if pause_s is None:
                    return
                self._threads.sleep(self._gpu.wall_s(pause_s))
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)

    def _reach(self, request: Request) -> None:
        """Wait for the device, and have every clock of the request asked for at its moment."""
        if self._closing or self.error is not None:
            return
        try:
            at_s = request.issued_s if request.moment is None else request.moment.wait()
            if math.isfinite(at_s) and request.asks and not self._closing:
                self._ask([DatedClock(at_s + a.delay_s, a.clock_mhz, a.memory_mhz) for a in request.asks])
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)

    def _ask(self, dated: list[DatedClock]) -> None:
        if isinstance(self._clocks, LocalClocks):
            self._clocks.ask(dated, more=self._reached < self._handed)
        else:
            self._clocks.ask(dated)
        for one in dated:
            self.asked.put(one)

    def _give_back(self) -> None:
        """Reset what was set, if the device answers."""
        try:
            self._clocks.close()
        except Exception as error:  # noqa: BLE001  # closing the device is the next try
            self.error = self.error or as_perseus_error(error)
