"""The least of some turns that succeeds, looked for from where the last one did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def least_turn(attempt: Callable[[int], T | None], *, begin: int, turns: int) -> tuple[int, T] | None:
    """Return the least turn from which on attempts succeed, and what it found; None where none below does.

    ``attempt`` returns None where a turn fails. Where those below a success all fail, this is the first
    success of them all. Where ``begin`` is near it, few turns are tried.

    Cost: turns between the beginning and the least one, and one or two more.
    """
    turn, found = begin, attempt(begin)
    if found is not None:
        while turn > 0 and (lower := attempt(turn - 1)) is not None:
            turn, found = turn - 1, lower
        return turn, found
    for turn in range(begin + 1, turns):
        if (found := attempt(turn)) is not None:
            return turn, found
    return None
