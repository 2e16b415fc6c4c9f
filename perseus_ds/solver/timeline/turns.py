"""The least of some turns that succeeds, looked for from where the last one did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def least_turn(attempt: Callable[[int], T | None], *, begin: int, turns: int) -> tuple[int, T] | None:
    """Return the least turn from which on attempts succeed, and what it found; None where none below does.

    ``attempt`` returns None where a turn fails. Where those below a success all fail, this is the first
    success of them all. Where ``begin`` is near it, few turns are tried.

    Cost: every turn on the way up; on the way down about twice the logarithm of their number.
    """
    for turn in range(begin, turns):
        if (found := attempt(turn)) is not None:
            return _down(attempt, turn, found) if turn == begin else (turn, found)
    return None


def _down(attempt: Callable[[int], T | None], turn: int, found: T) -> tuple[int, T]:
    """Go down from a success in steps that double, then halve what lies between it and a turn that fails."""
    fails, step = -1, 1
    while turn - 1 > fails:
        lower = max(turn - step, (turn + fails) // 2)
        if (other := attempt(lower)) is None:
            fails = lower
        else:
            turn, found, step = lower, other, 2 * step
    return turn, found
