"""Ask for clocks from the training thread without ever waiting: each at its moment of the device's time."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol, cast

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, DatedClocks, RequestCounts, overdue_s
from perseus_ds.device.clock_change import AskedClocks, Steps
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.errors import PerseusError, ValueRefusedError, as_perseus_error
from perseus_ds.runtime.recorder import Moment
from perseus_ds.runtime.threads import HostThreads

# Clocks asked for at their moments from this process: where no guard does it in one of its own.

Act = Callable[[], None]


class Alarm(Protocol):
    """Calls somebody at a moment of the device's time: virtual time itself, or a thread that sleeps."""

    def at(self, moment_s: float, act: Act) -> Act:
        """Have something done at a moment; return what cancels it."""


class HostAlarm:
    """Call at a moment of a device's time from a thread that sleeps until then; the newest moment counts."""

    def __init__(self, gpu: Gpu, threads: HostThreads) -> None:
        self._gpu = gpu
        self._queue = cast("SimpleQueue[tuple[float, Act]]", threads.queue(tuple))
        threads.start(self._serve, name="perseus-alarm")

    def at(self, moment_s: float, act: Act) -> Act:
        self._queue.put((moment_s, act))
        return lambda: None  # whoever is called too often finds nothing due

    def _serve(self) -> None:
        moment_s, act = self._queue.get()
        while True:
            left_s = self._gpu.wall_s(max(0.0, moment_s - self._gpu.now_s()))
            try:
                moment_s, act = self._queue.get(timeout=left_s)
            except Empty:
                act()
                moment_s, act = self._queue.get()


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
        """Return whether no higher clock is overdue, and nothing that is waits behind a call that hangs."""
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
        """Ask for what is due, and have this done again when the next request is.

        Nothing is done while a call is under way: the thread that made it looks again.
        """
        while True:
            with self._lock:
                if any((self._present, self._error, self._closing)):
                    return
                self._cancel()
                due = self._present = self._agenda.take(self._gpu.now_s())
                following_s = self._agenda.due_s
                if due is None:
                    if following_s is not None:
                        self._cancel = self._alarm.at(following_s, self._turn)
                    return
            try:
                if self._write(due.clock_mhz, due.memory_mhz):
                    late_s = max(0.0, self._gpu.now_s() - due.due_s)
                    self._agenda.counts.record_change(late_s=self._gpu.wall_s(late_s))
            except Exception as error:  # noqa: BLE001  # kept for the thread that asks next
                self._error = as_perseus_error(error)
            with self._lock:
                self._present = None
                closing = self._closing
            if closing and self._error is None:
                self._write(None, None)

    def _write(self, clock_mhz: int | None, memory_mhz: int | None) -> bool:
        """Ask for what is new; return whether anything was.

        A core clock that the driver refuses is replaced by the one that stands for it.
        """
        gpu, before = self._gpu, self._asked
        core_before, memory_before = before
        if clock_mhz != core_before:
            wanted_mhz = None if clock_mhz is None else gpu.granted_mhz(clock_mhz)
            while wanted_mhz is not None:
                try:
                    gpu.lock_clock(wanted_mhz)
                    break
                except ValueRefusedError:
                    refused_mhz, wanted_mhz = wanted_mhz, gpu.granted_mhz(wanted_mhz)
                    if wanted_mhz == refused_mhz:
                        raise
            if wanted_mhz is None:
                gpu.reset_clock()
            self._asked = clock_mhz, memory_before
        if memory_mhz != memory_before:
            if memory_mhz is None:
                gpu.reset_memory_clock()
            else:
                gpu.lock_memory_clock(memory_mhz)
            self._asked = clock_mhz, memory_mhz
        return (clock_mhz, memory_mhz) != before


# What the clock thread does at a device in steps; between two of them it lets the device's time pass.


class DeviceTask:
    """Steps that put back what they changed when they end, or are made to."""

    def __init__(self, steps: Steps[None]) -> None:
        self._steps = steps
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def go_on(self) -> float | None:
        """Do the next step; return how many device seconds are to pass before the next; None: no more."""
        if self._stopped:
            self._steps.close()
            return None
        return next(self._steps, None)


class VirtualTasks:
    """Tasks in virtual time, one after the other, each step at its moment."""

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual = virtual
        self._waiting: deque[DeviceTask] = deque()
        self._cancel: Callable[[], None] = lambda: None

    def put(self, task: DeviceTask) -> None:
        self._waiting.append(task)
        if len(self._waiting) == 1:
            self._go_on()

    def stop(self, task: DeviceTask) -> None:
        task.stop()
        if self._waiting and self._waiting[0] is task:
            self._cancel()
            self._go_on()

    def close(self) -> None:
        for task in self._waiting:
            task.stop()
        self._cancel()
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            pause_s = self._waiting[0].go_on()
            if pause_s is not None:
                self._cancel = self._virtual.at(self._virtual.now_s() + pause_s, self._go_on)
                return
            self._waiting.popleft()


_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Ask:
    """Clocks to ask for some device seconds after a moment (None: the device's own choice)."""

    clock_mhz: int | None
    delay_s: float = 0.0
    memory_mhz: int | None = None


_Order = tuple[Sequence[Ask], float, Moment | None]


class ClockThread:
    """Give every request its moment in device time, and hand it to whoever asks the device.

    The host runs ahead of the device, so a thread waits for each point of the stream in turn. A request is
    due at the moment when the device was there, plus its delay, however late the thread woke. A device with a
    ``virtual`` time needs no thread: its host is the device. A guard asks at each moment from a process of
    its own; without one `LocalClocks` does, by an alarm. The first error is kept for the training thread to
    find at its next iteration; after it nothing is asked for any more. ``stored`` tells if no higher clock is
    overdue, as far as is known here; a guard reports it by its device.
    """

    def __init__(
        self,
        gpu: Gpu,
        virtual: VirtualTime | None = None,
        *,
        threads: HostThreads | None = None,
        enter: Callable[[], None] = lambda: None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._threads = threads = threads or HostThreads()
        self._gpu = gpu
        self._enter = enter
        self._patience_s = patience_s
        self._closing = False
        self._handed = self._reached = 0
        guarded = gpu.dated_clocks()
        self._local = None if guarded else LocalClocks(gpu, virtual or HostAlarm(gpu, threads))
        self._clocks: DatedClocks = guarded or cast("DatedClocks", self._local)
        self.stored: Callable[[], bool] = (lambda: True) if self._local is None else self._local.look
        self.error: PerseusError | None = None
        self.asked = AskedClocks()
        self._queue: SimpleQueue[_Order | DeviceTask | None] | None = None
        self._tasks = None if virtual is None else VirtualTasks(virtual)
        if virtual is None:
            self._queue = cast("SimpleQueue[_Order | DeviceTask | None]", threads.queue(object))
            self._thread = threads.start(self._follow, name="perseus-clocks")

    @property
    def counts(self) -> RequestCounts:
        return self._clocks.counts

    def expect(self, latency_s: float) -> None:
        """Note how long a change of clock takes, and so when a higher one is overdue."""
        if self._local is not None:
            self._local.expect(latency_s)

    def put(self, asks: Sequence[Ask], issued_s: float, moment: Moment | None = None) -> None:
        """Hand over all that is asked for at one point of the stream.

        ``moment`` is that point, which the device reaches later than the host; None where the host is the
        device, and ``issued_s`` is when.

        Cost: about a microsecond; never blocks.
        """
        if self._queue is None:
            self._deliver(asks, issued_s, moment)
        else:
            self._handed += 1
            self._queue.put((asks, issued_s, moment))

    def run(self, task: DeviceTask) -> None:
        """Do something at the device in steps, after what was asked for so far; never blocks."""
        if self._tasks is not None:
            self._tasks.put(task)
        elif self._queue is not None:
            self._queue.put(task)

    def stop(self, task: DeviceTask) -> None:
        """Have a task end before its next step; never blocks."""
        task.stop()
        if self._tasks is not None:
            self._tasks.stop(task)

    def close(self) -> None:
        """Give the clock back to the device and end the thread; what still waits is dropped.

        A device that hangs is not waited for: closing the device itself is then what restores the clock.
        """
        self._closing = True
        if self._tasks is not None:
            self._tasks.close()
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
            if isinstance(wanted, DeviceTask):
                self._carry_out(wanted)
            else:
                self._reached += 1
                self._deliver(*wanted)
        self._give_back()

    def _carry_out(self, task: DeviceTask) -> None:
        """Do all steps of a task, or what puts back what the first of them did."""
        try:
            while True:
                if self._closing or self.error is not None:
                    task.stop()
                pause_s = task.go_on()
                if pause_s is None:
                    return
                self._threads.sleep(self._gpu.wall_s(pause_s))
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)

    def _deliver(self, asks: Sequence[Ask], issued_s: float, moment: Moment | None) -> None:
        """Wait for the device, and have every clock asked for at its moment."""
        if self._closing or self.error is not None:
            return
        try:
            at_s = issued_s if moment is None else moment()
            if not asks or self._closing or not math.isfinite(at_s):
                return
            dated = []
            for one in asks:
                dated.append(DatedClock(at_s + one.delay_s, one.clock_mhz, one.memory_mhz))
                self.asked.put(dated[-1])
            if self._local is not None:
                self._local.ask(dated, more=self._reached < self._handed)
            else:
                self._clocks.ask(dated)
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)

    def _give_back(self) -> None:
        try:
            self._clocks.close()
        except Exception as error:  # noqa: BLE001  # closing the device is the next try
            self.error = self.error or as_perseus_error(error)
