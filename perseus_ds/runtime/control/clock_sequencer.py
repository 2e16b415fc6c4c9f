"""Ask for the right clock at the right instruction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from perseus_ds.runtime.control.clock_requests import Request, Requests
from perseus_ds.schedule import Kind


@dataclass(frozen=True, slots=True)
class ClockStep:
    """One computation of this stage: its clock, and how long it should run at it."""

    clock_mhz: int
    duration_s: float


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


@dataclass(frozen=True, slots=True)
class ClockSchedule(ClockPolicy):
    """A clock for every computation.

    The next computation's clock is asked for as soon as the last one ends, so that the switch happens in
    the wait between them. Where it is higher, that may be too late (a plan leaves no wait on a critical
    path): it is asked for ``lead_s`` before the present computation should end. Lower clocks are never
    asked for early.
    """

    steps: tuple[ClockStep, ...]
    lead_s: float

    def begins(self, sequencer: ClockSequencer) -> None:
        """Ask for the first computation's clock, where the last iteration has not done so."""
        sequencer.position = 0
        sequencer.request(self.steps[0].clock_mhz)

    def before(self, sequencer: ClockSequencer) -> None:
        """Arrange for a higher clock to be there in time."""
        here, following = self._around(sequencer.position)
        if following.clock_mhz > here.clock_mhz:
            sequencer.request_later(following.clock_mhz, max(here.duration_s - self.lead_s, 1e-6))

    def after(self, sequencer: ClockSequencer) -> None:
        """Ask for the next computation's clock."""
        sequencer.request(self._around(sequencer.position)[1].clock_mhz)
        sequencer.position += 1

    def _around(self, position: int) -> tuple[ClockStep, ClockStep]:
        return self.steps[position], self.steps[(position + 1) % len(self.steps)]


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
        self._requested: int | None = None
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

    def rest(self, after_s: float) -> None:
        """Ask for the device's own choice if no iteration begins before long."""
        self.request_later(None, max(after_s, 1e-6))

    def request(self, clock_mhz: int | None) -> None:
        """Ask for a clock from this point of the stream on."""
        if clock_mhz != self._requested:
            self._requested = clock_mhz
            self._requests.put(Request(clock_mhz, self._now_s(), self._event()))

    def request_later(self, clock_mhz: int | None, delay_s: float) -> None:
        """Ask for a clock some device seconds after this point of the stream."""
        self._requested = clock_mhz
        self._requests.put(Request(clock_mhz, self._now_s(), self._event(), delay_s))
