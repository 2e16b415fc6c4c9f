"""Ask for the right clock at the right instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import OPENING, ClockRequest, PlanSet, clock_requests, opening_clocks
from perseus_ds.plan.select import plan_numbered
from perseus_ds.runtime.clock_thread import Ask, ClockThread
from perseus_ds.runtime.recorder import Moment
from perseus_ds.schedule import Kind

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

    ``latency_s`` is how long a change of clock takes.
    """

    def __init__(
        self,
        thread: ClockThread,
        now_s: Callable[[], float],
        *,
        moment: Callable[[], Moment | None],
        latency_s: float = 0.0,
    ) -> None:
        self._thread = thread
        self._now_s = now_s
        self._moment = moment
        self.latency_s = latency_s
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
