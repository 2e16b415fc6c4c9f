"""What ranks tell each other every iteration, and the one vector that it travels in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]

_HEAD = 3  # failed (council.FAILED), plan ready, duration


@dataclass(frozen=True, slots=True)
class Word:
    """What one rank tells; what it does not know is None.

    ``own_s`` is how long its iteration took without the wait for other replicas (minus infinity where
    another rank speaks for this replica), ``capped`` whether its device was held down by a power or thermal
    cap meanwhile. ``conflicts`` is 1 + its rank for every kind of which it has something to tell that
    nobody has heard, else 0. ``told`` are slowdowns announced from outside, which rank 0 alone knows.
    """

    failed: bool = False
    plan_ready: bool = False
    duration_s: float | None = None
    conflicts: Sequence[int] = ()
    own_s: float | None = None
    capped: bool = False
    told: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Replicas:
    """Every replica in one iteration: its slowest rank's own time, caps, announcements.

    An ``own_s`` that is not finite is unknown; a ``told`` below 1 announces nothing.

    Shape: vectors [replicas].
    """

    own_s: NDArray[np.float64]
    capped: NDArray[np.bool_]
    told: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class News:
    """What all ranks told of the iteration before."""

    failed: bool
    plan_ready: bool
    iteration_s: float | None
    conflicts: Sequence[int] = ()
    replicas: Replicas | None = None


class Layout:
    """Where everything stands in the vector, of which all ranks get the greatest of each place.

    The slowest of a replica's stages comes out by itself, so that the vector grows with the number of
    replicas and not with that of ranks. Where more ranks than one have something to tell of one kind of
    conflict, the last is heard first.

    Shape: 3 + kinds + 3 * replicas float64, and no place for replicas where there is one alone.
    """

    def __init__(self, *, kinds: int, replicas: int, replica: int) -> None:
        self._replicas = replicas if replicas > 1 else 0
        self._replica = replica
        self._kinds = kinds
        first = _HEAD + kinds
        own, capped, told, end = (first + row * self._replicas for row in range(4))
        self._rows = slice(own, capped), slice(capped, told), slice(told, end)
        self._blank = np.zeros(_HEAD + kinds + 3 * self._replicas)
        if self._replicas:
            self._blank[self._rows[0]] = -np.inf

    def vector(self, word: Word) -> NDArray[np.float64]:
        """Write down what this rank tells."""
        numbers = self._blank.copy()
        numbers[0], numbers[1], numbers[2] = word.failed, word.plan_ready, _or_inf(word.duration_s)
        if any(word.conflicts):
            numbers[_HEAD : _HEAD + len(word.conflicts)] = word.conflicts
        if self._replicas:
            own, capped, told = self._rows
            numbers[own.start + self._replica] = _or_inf(word.own_s)
            numbers[capped.start + self._replica] = word.capped
            if word.told is not None:
                numbers[told] = word.told
        return numbers

    def news(self, numbers: NDArray[np.float64]) -> News:
        """Read what came back."""
        failed, plan_ready, duration_s, *tellers = numbers[: _HEAD + self._kinds].tolist()
        return News(
            failed=bool(failed),
            plan_ready=bool(plan_ready),
            iteration_s=duration_s if math.isfinite(duration_s) else None,
            conflicts=tuple(map(int, tellers)) if any(tellers) else (),
            replicas=self._heard(numbers) if self._replicas else None,
        )

    def _heard(self, numbers: NDArray[np.float64]) -> Replicas:
        own_s, capped, told = self._tables(numbers)
        return Replicas(own_s, capped.astype(np.bool_), told)

    def _tables(self, numbers: NDArray[np.float64]) -> tuple[_Numbers, _Numbers, _Numbers]:
        """Own times, caps, announcements: the rows of the vector's end."""
        own, capped, told = self._rows
        return numbers[own], numbers[capped], numbers[told]


def _or_inf(duration_s: float | None) -> float:
    """An unknown duration is the longest, so that it stays unknown: NaN has no order."""
    return math.inf if duration_s is None else duration_s
