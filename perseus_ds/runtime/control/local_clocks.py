"""Clocks asked for at their moments from this process: where no guard does it in one of its own."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Protocol

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, RequestCounts, overdue_s
from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import PerseusError, ValueRefusedError, as_perseus_error
from perseus_ds.runtime.threads import Threads

Act = Callable[[], None]


class Alarm(Protocol):
    """Calls somebody at a moment of the device's time: virtual time itself, or a thread that sleeps."""

    def at(self, moment_s: float, act: Act) -> Act:
        """Have something done at a moment; return what cancels it."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What to do at which moment of the device's time."""

    moment_s: float
    act: Act


class HostAlarm:
    """Call at a moment of a device's time from a thread that sleeps until then; the newest moment counts."""

    def __init__(self, gpu: Gpu, threads: Threads) -> None:
        self._gpu = gpu
        self._queue = threads.queue(_Call)
        threads.start(self._serve, name="perseus-alarm")

    def at(self, moment_s: float, act: Act) -> Act:
        """Have something done at a moment, and nothing at the one before."""
        self._queue.put(_Call(moment_s, act))
        return lambda: None  # whoever is called too often finds nothing due

    def _serve(self) -> None:
        call = self._queue.get()
        while True:
            left_s = self._gpu.wall_s(max(0.0, call.moment_s - self._gpu.now_s()))
            try:
                call = self._queue.get(timeout=left_s)
            except Empty:
                call.act()
                call = self._queue.get()


class LocalClocks:
    """Ask a device at each moment; nobody waits for a call that another thread is in.

    Requests for what the device was asked for last are left out. The first error ends all asking; the next
    call raises it.
    """

    def __init__(self, gpu: Gpu, alarm: Alarm) -> None:
        self._gpu = gpu
        self._alarm = alarm
        self._agenda = ClockAgenda()
        self._asked: tuple[int | None, int | None] = None, None
        self._lock = threading.Lock()  # of the agenda; none is held in a call
        self._present: DatedClock | None = None
        self._closing = False
        self._patience_s = math.inf
        self._cancel: Act = lambda: None
        self._error: PerseusError | None = None

    @property
    def counts(self) -> RequestCounts:
        """What became of all requests so far."""
        return self._agenda.counts

    def expect(self, latency_s: float) -> None:
        """Note how long a change takes: a higher clock is overdue three times that after its moment."""
        self._patience_s = overdue_s(self._gpu.wall_s(latency_s))

    def ask(self, requests: Sequence[DatedClock], *, more: bool = False) -> None:
        """Enter requests, and ask for what is due; overdue ones behind which there are ``more`` give way.

        Raises:
            DeviceError: the device refused an earlier request.
        """
        with self._lock:
            for request in requests:
                self._agenda.put(request)
        if not (more and self._is_overdue(requests[-1].due_s)):
            self._turn()
        if self._error is not None:
            raise self._error

    def look(self) -> bool:
        """Whether no higher clock is overdue, and nothing that is waits behind a call that hangs."""
        with self._lock:
            present, waiting_s = self._present, self._agenda.due_s
        late = present is not None and self._is_higher(present.clock_mhz) and self._is_overdue(present.due_s)
        return not (late or (waiting_s is not None and self._is_overdue(waiting_s)))

    def close(self) -> None:
        """Drop what waits and reset what was set; where a call is under way, who made it does that."""
        with self._lock:
            self._agenda.clear()
            self._cancel()
            self._closing = True
            busy = self._present is not None
        if not busy and self._error is None:
            self._write(None, None)

    def _is_overdue(self, due_s: float) -> bool:
        return self._gpu.wall_s(self._gpu.now_s() - due_s) > self._patience_s

    def _is_higher(self, clock_mhz: int | None) -> bool:
        stored_mhz = self._asked[0]
        return stored_mhz is not None and (clock_mhz is None or clock_mhz > stored_mhz)

    def _turn(self) -> None:
        """Ask for what is due, and have this done again when the next request is."""
        while (due := self._taken()) is not None:
            self._apply(due)
            with self._lock:
                self._present = None
                closing = self._closing
            if closing and self._error is None:
                self._write(None, None)

    def _taken(self) -> DatedClock | None:
        """Take what is due, unless a call is under way: who made it looks again."""
        with self._lock:
            if self._present is not None or self._error is not None or self._closing:
                return None
            self._cancel()
            self._present = self._agenda.take(self._gpu.now_s())
            following_s = self._agenda.due_s
            if self._present is None and following_s is not None:
                self._cancel = self._alarm.at(following_s, self._turn)
            return self._present

    def _apply(self, due: DatedClock) -> None:
        try:
            if self._write(due.clock_mhz, due.memory_mhz):
                late_s = max(0.0, self._gpu.now_s() - due.due_s)
                self._agenda.counts.made(late_s=self._gpu.wall_s(late_s))
        except Exception as error:  # noqa: BLE001  # kept for the thread that asks next
            self._error = as_perseus_error(error)

    def _write(self, clock_mhz: int | None, memory_mhz: int | None) -> bool:
        """Ask for what is new; return whether anything was."""
        core_before, memory_before = self._asked
        if clock_mhz != core_before:
            self._write_core(clock_mhz)
            self._asked = clock_mhz, memory_before
        if memory_mhz != memory_before:
            if memory_mhz is None:
                self._gpu.reset_memory_clock()
            else:
                self._gpu.lock_memory_clock(memory_mhz)
            self._asked = clock_mhz, memory_mhz
        return (clock_mhz, memory_mhz) != (core_before, memory_before)

    def _write_core(self, clock_mhz: int | None) -> None:
        """Ask for a core clock, or for the one that stands for it where the driver refuses it."""
        wanted_mhz = None if clock_mhz is None else self._gpu.granted_mhz(clock_mhz)
        while wanted_mhz is not None:
            try:
                self._gpu.lock_clock(wanted_mhz)
            except ValueRefusedError:
                refused_mhz, wanted_mhz = wanted_mhz, self._gpu.granted_mhz(wanted_mhz)
                if wanted_mhz == refused_mhz:
                    raise
            else:
                return
        self._gpu.reset_clock()
