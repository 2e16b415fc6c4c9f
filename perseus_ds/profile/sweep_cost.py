"""What a sweep over clocks costs the training, before it begins; how many clocks a budget allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FEWEST_CLOCKS = 2
"""A budget leaves as many: fewer are no choice."""
_CHANGING = 2
"""Iterations at each clock that are not measured, at most: the clock changes in them."""
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class SweepCost:
    """How long a sweep lasts at most, and how much of that is lost against the highest clock.

    Units: seconds.
    """

    lasts_s: float
    lost_s: float

    @property
    def slower_pct(self) -> float:
        """By how much training is slower meanwhile, at most."""
        rest_s = self.lasts_s - self.lost_s
        return 100.0 * self.lost_s / rest_s if rest_s > 0.0 else 0.0

    def __str__(self) -> str:
        """For the job's log."""
        return f"at most {in_words(self.lasts_s)}, training up to {self.slower_pct:.0f} % slower meanwhile"


def in_words(time_s: float) -> str:
    """A time to wait for: seconds, from two minutes on minutes."""
    return f"{time_s:.0f} s" if time_s < 2 * _MINUTE_S else f"{time_s / _MINUTE_S:.0f} minutes"


def cost_of(
    clocks_mhz: Sequence[int], *, highest_mhz: int, iterations: int, iteration_s: float, settling: int = 0
) -> SweepCost:
    """Bound the cost of measuring ``iterations`` at each clock: work slows down at most as its clock does.

    ``iteration_s`` is an iteration at the highest clock; ``settling`` iterations there come first.
    """
    each = iterations + _CHANGING
    lasts_s = sum(each * iteration_s * highest_mhz / clock for clock in clocks_mhz)
    lost_s = lasts_s - each * iteration_s * len(clocks_mhz)
    return SweepCost(lasts_s + settling * iteration_s, lost_s)


def most_clocks(budget_s: float, count: int, cost: Callable[[int], SweepCost]) -> int:
    """Return how many of ``count`` clocks a budget allows, ``FEWEST_CLOCKS`` at least.

    ``cost`` is that of a sweep over so many clocks.
    """
    allowed = (number for number in range(count, FEWEST_CLOCKS, -1) if cost(number).lasts_s <= budget_s)
    return next(allowed, min(count, FEWEST_CLOCKS))
