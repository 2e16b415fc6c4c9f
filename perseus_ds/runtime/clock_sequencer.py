"""Ask for the right clock at the right instruction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PerseusError
from perseus_ds.plan import OPENING, ClockRequest, PlanSet, clock_requests, opening_clocks
from perseus_ds.runtime.clock_thread import Ask, Request, Requests
from perseus_ds.runtime.recorder import Moment
from perseus_ds.schedule import Kind

Asks = tuple[Ask, ...]


class ClockPolicy(ABC):
    """What an iteration is run by."""

    @abstractmethod
    def begins(self, sequencer: ClockSequencer) -> None:
        """The iteration starts."""

    @abstractmethod
    def before(self, sequencer: ClockSequencer) -> None:
        """A computation is about to be issued."""

    @abstractmethod
    def after(self, sequencer: ClockSequencer) -> None:
        """A computation was issued."""


@dataclass(frozen=True, slots=True)
class FixedClock(ClockPolicy):
    """One clock for the whole iteration; None is the device's own choice."""

    clock_mhz: int | None

    def begins(self, sequencer: ClockSequencer) -> None:
        """Ask once."""
        sequencer.request(Ask(self.clock_mhz))

    def before(self, sequencer: ClockSequencer) -> None:
        """Ask for nothing more."""

    def after(self, sequencer: ClockSequencer) -> None:
        """Ask for nothing more."""


@dataclass(frozen=True, slots=True)
class ClockSchedule(ClockPolicy):
    """The requests of a plan's timeline: while a computation runs, and when it is over.

    A request while it runs is made so long after its start, in device time. It is the request for what comes
    later, asked ahead by the latency of the change. ``opening`` is what is asked for when an iteration
    begins: first the clocks that the iteration before has asked for last, then those due before the first
    computation begins. ``standing`` is what has been asked for last when a computation begins, for
    who changes to this schedule there.

    Shape: ``during``, ``over``, ``standing`` [computations of this rank].
    """

    opening: Asks
    during: tuple[Asks, ...]
    over: tuple[Asks, ...]
    standing: Asks = ()

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
        last, standing = opening[-1], []
        for asked_during, asked_over in zip(during, over, strict=True):
            standing.append(replace(last, delay_s=0.0))
            last = [last, *asked_during, *asked_over][-1]
        return cls(tuple(opening), tuple(map(tuple, during)), tuple(map(tuple, over)), tuple(standing))

    def begins(self, sequencer: ClockSequencer) -> None:
        """Ask for the clock to begin with, where the last iteration has not done so, and for what is due."""
        sequencer.position = 0
        sequencer.request(*self.opening)

    def stands(self, sequencer: ClockSequencer) -> None:
        """Ask for what is in force here, for another schedule was followed until now."""
        sequencer.request(self.standing[sequencer.position % len(self.standing)])

    def before(self, sequencer: ClockSequencer) -> None:
        """Ask for what is due while the computation runs."""
        sequencer.request(*self.during[sequencer.position % len(self.during)])

    def after(self, sequencer: ClockSequencer) -> None:
        """Ask for what is due now that it is over."""
        sequencer.request(*self.over[sequencer.position % len(self.over)])
        sequencer.position += 1


_UNKNOWN = Ask(-1)  # no clock


class Turns(Protocol):
    """A device that several engines of this process may train on, one at a time."""

    def take(self, who: object) -> bool:
        """Have it be somebody's turn; return whether somebody else has had the clocks since the last one."""


class ClockSequencer:
    """Follow the engine's instructions and turn the present clock policy into requests.

    ``latency_s`` is how long a change of clock takes, ``turns`` whose turn it is where several engines of
    this process train on the device.
    """

    def __init__(
        self,
        requests: Requests,
        now_s: Callable[[], float],
        *,
        moment: Callable[[], Moment | None],
        turns: Turns | None = None,
        latency_s: float = 0.0,
    ) -> None:
        self._requests = requests
        self._now_s = now_s
        self._moment = moment
        self._turns = turns
        self.latency_s = latency_s
        self._policy: ClockPolicy = FixedClock(None)
        self._requested = Ask(None)
        self.position = 0

    def begin(self, clock_policy: ClockPolicy) -> None:
        """An iteration begins."""
        self._policy = clock_policy
        clock_policy.begins(self)

    def before(self, kind: Kind) -> None:
        """An instruction is about to be issued."""
        if kind.is_computation:
            self._policy.before(self)

    def after(self, kind: Kind) -> None:
        """An instruction was issued."""
        if kind.is_computation:
            self._policy.after(self)

    @property
    def now_s(self) -> float:
        """The device's time."""
        return self._now_s()

    @property
    def error(self) -> PerseusError | None:
        """Why clocks are not asked for any more."""
        return self._requests.error

    @property
    def stored(self) -> bool:
        """Whether no higher clock is overdue, as far as is known here."""
        return self._requests.stored

    def take_turn(self) -> bool:
        """Have it be this engine's turn; return whether another has had the clocks, at whatever they are."""
        if self._turns is None or not self._turns.take(self):
            return False
        self._requested = _UNKNOWN
        return True

    def rest(self, after_s: float) -> None:
        """Ask for the device's own choice if no iteration begins before long."""
        self.request(Ask(None, after_s))

    def request(self, *asks: Ask) -> None:
        """Ask for clocks at this point of the stream and after it, but for one that was asked for last.

        Cost: nothing is put into the stream where nothing is asked for.
        """
        if asks and asks[0] == self._requested:
            asks = asks[1:]
        if asks:
            last = asks[-1]
            self._requested = replace(last, delay_s=0.0) if last.delay_s else last
            self._requests.put(Request(asks, self._now_s(), self._moment()))


# The clock requests of one pipeline rank, for every plan that it may follow.


class ClockSchedules:
    """The clock schedule of one pipeline rank for every plan, each made when it is first asked for.

    Cost: one pass over the schedule's graph the first time, a look-up from then on.
    """

    def __init__(self, plans: PlanSet, *, pipeline_rank: int, change: ClockChange) -> None:
        self._plans = plans
        self._rank = pipeline_rank
        self._change = change
        self.computations = len(plans.computations_of(pipeline_rank))
        self._schedules: dict[tuple[int, bool], ClockSchedule] = {}

    def __len__(self) -> int:
        """How many plans there are."""
        return len(self._plans)

    def of(self, plan: int, *, on_pace: bool = True) -> ClockSchedule:
        """Every request of the rank, by the computation that it is asked in.

        ``on_pace``: computations last as long as planned, so that lower clocks may be asked for ahead.
        """
        key = plan, on_pace
        if key not in self._schedules:
            chosen = self._plans.plan(plan)
            requests = clock_requests(chosen, self._rank, self._change, on_pace=on_pace)
            opening = opening_clocks(chosen, self._rank, requests)
            self._schedules[key] = ClockSchedule.of(requests, opening, self.computations)
        return self._schedules[key]

    @cached_property
    def highest(self) -> ClockSchedule:
        """The highest clock of the plans throughout."""
        own = [self._plans.options[i.stage, i.kind] for _, i in self._plans.computations_of(self._rank)]
        highest_mhz = max(int(max(options.clock_mhz)) for options in own)
        return ClockSchedule.of((), (highest_mhz, None), self.computations)

    def time_s(self, plan: int) -> float:
        """How long an iteration lasts by a plan."""
        return float(self._plans.iteration_time_s[plan])
