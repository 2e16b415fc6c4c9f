"""What a sweep over clocks costs the training, and by how many iterations at default clocks it is diluted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LAG = 1
"""Iterations at default clocks after each window, at least: until then it is not known."""
_MINUTE_S = 60.0
_ENOUGH = 4
"""Iterations at default clocks that show what is usual."""


@dataclass(frozen=True, slots=True)
class SweepCost:
    """How long a sweep lasts, and how much of that is lost against the highest clock.

    Units: seconds.
    """

    lasts_s: float
    lost_s: float

    @property
    def slower_pct(self) -> float:
        """By how much training is slower meanwhile."""
        rest_s = self.lasts_s - self.lost_s
        return 100.0 * self.lost_s / rest_s if rest_s > 0.0 else 0.0


def in_words(time_s: float) -> str:
    """A time to wait for: seconds, from two minutes on minutes."""
    return f"{time_s:.0f} s" if time_s < 2 * _MINUTE_S else f"{time_s / _MINUTE_S:.0f} minutes"


@dataclass(frozen=True, slots=True)
class WindowLength:
    """How many iterations a window takes: so many that ``needed_s`` pass, and ``least`` at least.

    ``iteration_s`` is one of them at the highest clock. At a lower one they last longer: fewer are enough.
    """

    iteration_s: float
    needed_s: float
    least: int = 1

    def at(self, slower: float = 1.0) -> int:
        """Return how many it takes where they last ``slower`` times as long, or somewhat longer."""
        return max(self.least, math.ceil(self.needed_s / (self.iteration_s * slower) - 1e-9))


@dataclass(slots=True)
class SweepPace:
    """How many iterations run at default clocks before each window, so that training loses little.

    Training is slower by no more than ``most_slower_pct`` since the sweep began, at the end of any window and
    with the ``coming`` iterations, which are at the highest clock: every sweep ends there.
    ``took_s`` is how long the ``timed`` iterations of it really took, ``rested_s`` those of them at default
    clocks, and ``rested_s2`` the sum of their squares (s^2). ``broken`` counts those of its windows that were
    not measured, since something else had run before them.

    Units: ``ran`` and ``lost`` in iterations at the highest clock, as expected.
    """

    most_slower_pct: float
    coming: float = 0.0
    ran: float = 0.0
    lost: float = 0.0
    took_s: float = 0.0
    timed: int = 0
    rested_s: float = 0.0
    rested_s2: float = 0.0
    rested: int = 0
    broken: int = 0

    def rests(self, iterations: int, slower: float) -> int:
        """Return how many come before ``iterations`` that last ``slower`` times as long."""
        lost = self.surely_lost + self._seen * iterations * (slower - 1.0)
        ran = self.ran + iterations + self.coming
        return max(0, math.ceil(100.0 * lost / self.most_slower_pct - ran - 1e-9))

    def lasts(self, slower: float) -> float:
        """Return how many times as long iterations will last, by what was seen; 1 while nothing was.

        They are expected to last ``slower`` times as long, at most.
        """
        return 1.0 + self._seen * (slower - 1.0) if self.lost > 0.0 and self.rested >= _ENOUGH else 1.0

    @property
    def _seen(self) -> float:
        """Of what was expected to be lost the part that was."""
        return self.surely_lost / self.lost if self.lost > 0.0 else 1.0

    def pass_(self, iterations: int, slower: float = 1.0) -> None:
        """Note what ran."""
        self.ran += iterations
        self.lost += iterations * (slower - 1.0)

    def took(self, iteration_s: float, *, resting: bool) -> None:
        """Note how long one really took; ``resting``: at default clocks."""
        self.took_s += iteration_s
        self.timed += 1
        if resting:
            self.rested_s += iteration_s
            self.rested_s2 += iteration_s**2
            self.rested += 1

    @property
    def surely_lost(self) -> float:
        """How much was lost so far, as expected or, if that is less, as seen: two standard errors more.

        Work slows down less than its clock, and iterations by less than their computations.
        """
        if self.rested < _ENOUGH:
            return self.lost
        usual_s = self.rested_s / self.rested
        variance_s2 = max(0.0, self.rested_s2 / self.rested - usual_s**2) / (self.rested - 1)
        seen = self.took_s / usual_s - self.timed * (1.0 - 2.0 * math.sqrt(variance_s2) / usual_s)
        return min(self.lost, max(0.0, seen))

    def slower_pct(self, iteration_s: float) -> float:
        """By how much training was slower than in its own iterations at default clocks.

        Where it had none, than at ``iteration_s`` an iteration: single ones differ where work varies.
        """
        if not self.timed:
            return 0.0
        usual_s = self.rested_s / self.rested if self.rested else iteration_s
        return 100.0 * (self.took_s / (self.timed * usual_s) - 1.0)


def coming_after(iterations: int) -> int:
    """How many iterations at the highest clock end a sweep: its window, and default clocks before it."""
    return _LAG + 1 + iterations + _LAG


def cost_of(
    slower: Sequence[float], *, window: WindowLength, most_slower_pct: float, settling: int = 0
) -> SweepCost:
    """Walk a sweep on paper: windows whose iterations last ``slower`` times as long, and their rests.

    The highest clock comes once more at its end; ``settling`` iterations there come first.
    """
    pace = SweepPace(most_slower_pct, coming_after(window.at()))
    pace.pass_(settling)
    for one in slower:
        iterations = window.at(one)
        pace.pass_(pace.rests(iterations, one))
        pace.pass_(iterations, one)
        pace.pass_(_LAG)
    pace.pass_(coming_after(window.at()) - _LAG)
    return SweepCost((pace.ran + pace.lost) * window.iteration_s, pace.lost * window.iteration_s)
