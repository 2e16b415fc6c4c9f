"""Ask for the right clock at the right instruction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from perseus_ds.runtime.control.clock_requests import ClockRequests, Request
from perseus_ds.schedule import Kind


@dataclass(frozen=True, slots=True)
class Step:
    """One computation of this stage: its clock, and how long it should run at it."""

    clock_mhz: int
    duration_s: float


class Score(ABC):
    """What an iteration is played by."""

    @abstractmethod
    def begins(self, conductor: Conductor) -> None:
        """The iteration starts."""

    @abstractmethod
    def before(self, conductor: Conductor) -> None:
        """A computation is about to be issued."""

    @abstractmethod
    def after(self, conductor: Conductor) -> None:
        """A computation was issued."""


@dataclass(frozen=True, slots=True)
class Steady(Score):
    """One clock for the whole iteration; None is the device's own choice."""

    clock_mhz: int | None

    def begins(self, conductor: Conductor) -> None:
        """Ask once."""
        conductor.ask(self.clock_mhz)

    def before(self, conductor: Conductor) -> None:
        """Ask for nothing more."""

    def after(self, conductor: Conductor) -> None:
        """Ask for nothing more."""


@dataclass(frozen=True, slots=True)
class Planned(Score):
    """A clock for every computation.

    The next computation's clock is asked for as soon as the last one ends, so that the switch happens in
    the wait between them. Where it is higher, that may be too late (a plan leaves no wait on a critical
    path): it is asked for ``lead_s`` before the present computation should end. Lower clocks are never
    asked for early.
    """

    steps: tuple[Step, ...]
    lead_s: float

    def begins(self, conductor: Conductor) -> None:
        """Ask for the first computation's clock, where the last iteration has not done so."""
        conductor.position = 0
        conductor.ask(self.steps[0].clock_mhz)

    def before(self, conductor: Conductor) -> None:
        """Arrange for a higher clock to be there in time."""
        here, following = self._around(conductor.position)
        if following.clock_mhz > here.clock_mhz:
            conductor.ask_later(following.clock_mhz, max(here.duration_s - self.lead_s, 1e-6))

    def after(self, conductor: Conductor) -> None:
        """Ask for the next computation's clock."""
        conductor.ask(self._around(conductor.position)[1].clock_mhz)
        conductor.position += 1

    def _around(self, position: int) -> tuple[Step, Step]:
        return self.steps[position], self.steps[(position + 1) % len(self.steps)]


class Conductor:
    """Follow the engine's instructions and turn the present score into requests."""

    def __init__(
        self,
        requests: ClockRequests,
        now_s: Callable[[], float],
        *,
        event: Callable[[], torch.cuda.Event | None],
    ) -> None:
        self._requests = requests
        self._now_s = now_s
        self._event = event
        self._score: Score = Steady(None)
        self._asked: int | None = None
        self.position = 0

    def play(self, score: Score) -> None:
        """An iteration begins."""
        self._score = score
        score.begins(self)

    def before(self, kind: Kind) -> None:
        """An instruction is about to be issued."""
        if kind.is_computation:
            self._score.before(self)

    def after(self, kind: Kind) -> None:
        """An instruction was issued."""
        if kind.is_computation:
            self._score.after(self)

    def ask(self, clock_mhz: int | None) -> None:
        """Ask for a clock from this point of the stream on."""
        if clock_mhz != self._asked:
            self._asked = clock_mhz
            self._requests.put(Request(clock_mhz, self._now_s(), self._event()))

    def ask_later(self, clock_mhz: int, delay_s: float) -> None:
        """Ask for a clock some device seconds after this point of the stream."""
        self._asked = clock_mhz
        self._requests.put(Request(clock_mhz, self._now_s(), self._event(), delay_s))
