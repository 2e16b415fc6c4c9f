"""Ask for the right clock at the right instruction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from perseus_ds.plan import OPENING, ClockRequest
from perseus_ds.runtime.control.clock_requests import Request, Requests
from perseus_ds.schedule import Kind


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
        sequencer.request(self.clock_mhz)

    def before(self, sequencer: ClockSequencer) -> None:
        """Ask for nothing more."""

    def after(self, sequencer: ClockSequencer) -> None:
        """Ask for nothing more."""


Asked = tuple[ClockRequest, ...]


@dataclass(frozen=True, slots=True)
class ClockSchedule(ClockPolicy):
    """The requests of a plan's timeline: while a computation runs, and when it is over.

    A request while it runs is sent so long after its start, in device time; it is the request for what
    comes later, asked ahead by the latency of the change. ``first`` is what the iteration before has asked
    for last, core and memory clock, ``opening`` what is asked for before the first computation begins.

    Shape: ``during``, ``over`` [computations of this rank].
    """

    first: tuple[int, int | None]
    opening: Asked
    during: tuple[Asked, ...]
    over: tuple[Asked, ...]

    @classmethod
    def of(
        cls, requests: Sequence[ClockRequest], first: tuple[int, int | None], computations: int
    ) -> ClockSchedule:
        """Sort requests by the computation that they are asked in."""
        opening: list[ClockRequest] = []
        during: list[list[ClockRequest]] = [[] for _ in range(computations)]
        over: list[list[ClockRequest]] = [[] for _ in range(computations)]
        for request in requests:
            when = over if request.over else during
            place = opening if request.position == OPENING else when[request.position]
            place.append(request)
        return cls(first, tuple(opening), tuple(map(tuple, during)), tuple(map(tuple, over)))

    def begins(self, sequencer: ClockSequencer) -> None:
        """Ask for the clock to begin with, where the last iteration has not done so, and for what is due."""
        sequencer.position = 0
        sequencer.request(*self.first)
        for asked in self.opening:
            sequencer.request_later(asked.clock_mhz, max(asked.offset_s, _AT_ONCE_S), asked.memory_mhz)

    def before(self, sequencer: ClockSequencer) -> None:
        """Ask for what is due while the computation runs."""
        for asked in self.during[sequencer.position % len(self.during)]:
            sequencer.request_later(asked.clock_mhz, max(asked.offset_s, _AT_ONCE_S), asked.memory_mhz)

    def after(self, sequencer: ClockSequencer) -> None:
        """Ask for what is due now that it is over."""
        for asked in self.over[sequencer.position % len(self.over)]:
            if asked.offset_s:
                sequencer.request_later(asked.clock_mhz, asked.offset_s, asked.memory_mhz)
            else:
                sequencer.request(asked.clock_mhz, asked.memory_mhz)
        sequencer.position += 1


_AT_ONCE_S = 1e-6
_UNKNOWN = -1  # no clock


class ClockSequencer:
    """Follow the engine's instructions and turn the present clock policy into requests."""

    def __init__(
        self,
        requests: Requests,
        now_s: Callable[[], float],
        *,
        event: Callable[[], torch.cuda.Event | None],
    ) -> None:
        self._requests = requests
        self._now_s = now_s
        self._event = event
        self._policy: ClockPolicy = FixedClock(None)
        self._requested: tuple[int | None, int | None] = (None, None)
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

    def forget(self) -> None:
        """Somebody else has asked for clocks: what is in force is not known."""
        self._requested = _UNKNOWN, None

    def rest(self, after_s: float) -> None:
        """Ask for the device's own choice if no iteration begins before long."""
        self.request_later(None, max(after_s, 1e-6))

    def request(self, clock_mhz: int | None, memory_mhz: int | None = None) -> None:
        """Ask for clocks from this point of the stream on."""
        if (clock_mhz, memory_mhz) != self._requested:
            self._requested = clock_mhz, memory_mhz
            self._requests.put(Request(clock_mhz, self._now_s(), self._event(), memory_mhz=memory_mhz))

    def request_later(self, clock_mhz: int | None, delay_s: float, memory_mhz: int | None = None) -> None:
        """Ask for clocks some device seconds after this point of the stream."""
        self._requested = clock_mhz, memory_mhz
        self._requests.put(Request(clock_mhz, self._now_s(), self._event(), delay_s, memory_mhz))
