"""Ask for the right clock at the right instruction, from the training thread, without ever waiting.

`ClockSequencer` walks an iteration's clock schedule and says which clock is due; `ClockThread` has it asked
for at its moment of the device's time.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import cast

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, DatedClocks, RequestCounts
from perseus_ds.device.clock_change import AskedClocks, ClockChange, Steps
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.errors import PerseusError, ValueRefusedError, as_perseus_error
from perseus_ds.plan import PlanSet
from perseus_ds.plan.clock_requests import OPENING, ClockRequest, clock_requests, opening_clocks
from perseus_ds.plan.select import plan_numbered
from perseus_ds.runtime.recorder import Moment
from perseus_ds.runtime.threads import HostThreads
from perseus_ds.schedule import Kind

# Clocks asked for at their moments from this process: where no guard does it in one of its own.

Act = Callable[[], None]


class HostAlarm:
    """Call at a moment of a device's time from a thread that sleeps until then; the newest moment counts.

    `VirtualTime` calls by itself.
    """

    def __init__(self, gpu: Gpu, threads: HostThreads) -> None:
        self._gpu = gpu
        self._queue = cast("SimpleQueue[tuple[float, Act]]", threads.queue(tuple))
        threads.start(self._serve, name="perseus-alarm")

    def at(self, moment_s: float, act: Act) -> Act:
        """Have something done at a moment; return what cancels it."""
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

    def __init__(self, gpu: Gpu, alarm: HostAlarm | VirtualTime) -> None:
        self._gpu = gpu
        self._alarm = alarm
        self._agenda = ClockAgenda()
        self._asked: tuple[int | None, int | None] = None, None
        self._lock = threading.Lock()  # of the agenda; none is held in a call
        self._busy = self._closing = False
        self._cancel: Act = lambda: None
        self._error: PerseusError | None = None

    @property
    def counts(self) -> RequestCounts:
        return self._agenda.counts

    def ask(self, requests: Sequence[DatedClock]) -> None:
        """Enter requests, and ask for what is due.

        Raises:
            DeviceError: the device refused an earlier request.
        """
        with self._lock:
            for request in requests:
                self._agenda.put(request)
        self._turn()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Drop what waits and reset what was set; where a call is under way, who made it does that."""
        with self._lock:
            self._agenda.clear()
            self._cancel()
            self._closing = True
            busy = self._busy
        if not busy and self._error is None:
            self._write(None, None)

    def _turn(self) -> None:
        """Ask for what is due, and have this done again when the next request is.

        Nothing is done while a call is under way: the thread that made it looks again.
        """
        while True:
            with self._lock:
                if any((self._busy, self._closing, self._error)):
                    return
                self._cancel()
                due = self._agenda.take(self._gpu.now_s())
                if due is None:
                    if self._agenda.due_s is not None:
                        self._cancel = self._alarm.at(self._agenda.due_s, self._turn)
                    return
                self._busy = True
            try:
                if self._write(due.clock_mhz, due.memory_mhz):
                    late_s = max(0.0, self._gpu.now_s() - due.due_s)
                    self._agenda.counts.record_change(late_s=self._gpu.wall_s(late_s))
            except Exception as error:  # noqa: BLE001  # kept for the thread that asks next
                self._error = as_perseus_error(error)
            with self._lock:
                self._busy = False
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
    find at its next iteration; after it nothing is asked for any more.
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
        self._clocks: DatedClocks = gpu.dated_clocks() or LocalClocks(gpu, virtual or HostAlarm(gpu, threads))
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

    def put(self, asks: Sequence[Ask], issued_s: float, moment: Moment | None = None) -> None:
        """Hand over all that is asked for at one point of the stream.

        ``moment`` is that point, which the device reaches later than the host; None where the host is the
        device, and ``issued_s`` is when.

        Cost: about a microsecond; never blocks.
        """
        if self._queue is None:
            self._deliver(asks, issued_s, moment)
        else:
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
            self._clocks.ask(dated)
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)

    def _give_back(self) -> None:
        try:
            self._clocks.close()
        except Exception as error:  # noqa: BLE001  # closing the device is the next try
            self.error = self.error or as_perseus_error(error)


# Which clock is asked for at which instruction: the schedule of an iteration, and the walk along it.

Asks = tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class ClockSchedule:
    """The clock requests of one iteration: when it begins, while a computation runs, and when it is over.

    A request while a computation runs is made so long after its start, in device time: it is for what comes
    later, ahead by the latency of the change. ``opening`` are first the clocks that the iteration before has
    requested last, then those due before the first computation begins. ``state_at`` is the last request
    before a computation, for who changes to this schedule there.

    Shape: ``during``, ``over``, ``state_at`` [computations of this rank]; empty where one clock serves all.
    """

    opening: Asks
    during: tuple[Asks, ...] = ()
    over: tuple[Asks, ...] = ()
    state_at: Asks = ()

    @classmethod
    def of(
        cls, requests: Sequence[ClockRequest], first: tuple[int, int | None], computations: int
    ) -> ClockSchedule:
        """Sort requests by the computation that they are asked in; ``first`` is in force before any."""
        opening = [Ask(first[0], memory_mhz=first[1])]
        during: list[list[Ask]] = [[] for _ in range(computations)]
        over: list[list[Ask]] = [[] for _ in range(computations)]
        for request in requests:
            when = over if request.over else during
            place = opening if request.position == OPENING else when[request.position]
            place.append(Ask(request.clock_mhz, request.offset_s, request.memory_mhz))
        last, state_at = opening[-1], []
        for asked_during, asked_over in zip(during, over, strict=True):
            state_at.append(replace(last, delay_s=0.0))
            last = [last, *asked_during, *asked_over][-1]
        return cls(tuple(opening), tuple(map(tuple, during)), tuple(map(tuple, over)), tuple(state_at))


def fixed_clock(clock_mhz: int | None) -> ClockSchedule:
    """Return a schedule of one clock for the whole iteration; None is the device's own choice."""
    return ClockSchedule((Ask(clock_mhz),))


DEFAULT_CLOCK = fixed_clock(None)
_UNKNOWN = Ask(-1)  # no clock


class ClockSequencer:
    """Walk an iteration's clock schedule with the engine's instructions, and request what changes.

    ``latency_s`` is how long a change of clock takes; a session sets it.
    """

    def __init__(
        self,
        thread: ClockThread,
        now_s: Callable[[], float],
        *,
        moment: Callable[[], Moment | None],
    ) -> None:
        self._thread = thread
        self._now_s = now_s
        self._moment = moment
        self.latency_s = 0.0
        self._requested = Ask(None)

    def begin(self, schedule: ClockSchedule) -> None:
        """Request what an iteration opens with, but for a clock that the last one has requested."""
        self.position, self._schedule = 0, schedule
        self._resume: Asks = ()
        self.request(schedule.opening)

    def change_to(self, schedule: ClockSchedule) -> None:
        """Follow another schedule until the last computation is over, then request the first one's opening.

        A replica that is slowed for one iteration so leaves its low clock while it waits for the others. A
        request at the next iteration's begin would come one latency into it.
        """
        self._schedule, self._resume = schedule, self._schedule.opening[:1]
        self.request((schedule.state_at[self.position % len(schedule.state_at)],))

    def before(self, kind: Kind) -> None:
        """Request what is due while a computation runs that is about to be issued."""
        during = self._schedule.during
        if during and kind.is_computation and (asks := during[self.position % len(during)]):
            self.request(asks)

    def after(self, kind: Kind) -> None:
        """Request what is due now that a computation was issued."""
        over = self._schedule.over
        if over and kind.is_computation:
            if asks := over[self.position % len(over)]:
                self.request(asks)
            self.position += 1
            if self._resume and self.position == len(over):
                self.request(self._resume)

    def forget(self) -> None:
        """Note that another engine had the clocks: they may be at whatever it requested."""
        self._requested = _UNKNOWN

    def request(self, asks: Asks) -> None:
        """Ask for clocks at this point of the stream and after it, but for one that was asked for last.

        Cost: nothing is put into the stream where nothing is asked for.
        """
        if asks and asks[0] == self._requested:
            asks = asks[1:]
        if asks:
            last = asks[-1]
            self._requested = replace(last, delay_s=0.0) if last.delay_s else last
            self._thread.put(asks, self._now_s(), self._moment())


_MOST_SCHEDULES = 1000  # mixtures beside a straggler that drifts would fill the memory of a long job


class ClockSchedules:
    """The clock schedule of one pipeline rank for every plan, each made when it is first asked for.

    A plan is a number (``plan_numbered``).

    Cost: some passes over the schedule's graph the first time, a look-up from then on.

    Shape: ``iteration_time_s`` [plans].
    """

    def __init__(self, plans: PlanSet, *, pipeline_rank: int, change: ClockChange) -> None:
        self._plans = plans
        self._rank = pipeline_rank
        self._change = change
        self._computations = len(plans.computations_of(pipeline_rank))
        self._schedules: dict[tuple[float, bool], ClockSchedule] = {}
        self.iteration_time_s = plans.iteration_time_s

    def of(self, plan: float, *, on_pace: bool = True) -> ClockSchedule:
        """Return every request of the rank, by the computation that it is asked in.

        ``on_pace``: computations last as long as planned, so that lower clocks may be asked for ahead.
        """
        key = plan, on_pace
        if key not in self._schedules:
            if len(self._schedules) >= _MOST_SCHEDULES:
                self._schedules.clear()
            chosen = plan_numbered(self._plans, plan)
            requests = clock_requests(chosen, self._rank, self._change, on_pace=on_pace)
            opening = opening_clocks(chosen, self._rank, requests)
            self._schedules[key] = ClockSchedule.of(requests, opening, self._computations)
        return self._schedules[key]

    @cached_property
    def highest(self) -> ClockSchedule:
        """The highest clock of the plans throughout."""
        own = [self._plans.options[i.stage, i.kind] for _, i in self._plans.computations_of(self._rank)]
        highest_mhz = max(int(max(options.clock_mhz)) for options in own)
        return ClockSchedule.of((), (highest_mhz, None), self._computations)
