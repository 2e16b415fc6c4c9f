"""The problem as its user states it: activities with options, and what must end before what starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import SolverError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class OptionTable:
    """The choices of one kind of activity, in any order.

    Units: seconds, and any unit of cost that adds up (joules of effective energy); costs may be negative.
    Shape: two vectors of one length.

    Raises:
        SolverError: no options, unequal lengths, a negative duration, or a number that is not finite.
    """

    duration_s: Floats
    cost_j: Floats

    def __post_init__(self) -> None:
        for name in ("duration_s", "cost_j"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        if self.duration_s.ndim != 1 or self.duration_s.shape != self.cost_j.shape:
            raise SolverError(
                f"a table of options has {self.duration_s.shape} durations and {self.cost_j.shape} costs,"
                " expected two vectors of one length"
            )
        if not len(self.duration_s):
            raise SolverError("a table of options is empty", hint="give every activity at least one option")
        _refuse("duration", self.duration_s, np.isfinite(self.duration_s) & (self.duration_s >= 0.0))
        _refuse("cost", self.cost_j, np.isfinite(self.cost_j))

    def __len__(self) -> int:
        return len(self.duration_s)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Activities, each with a table of options, and precedences ``start(after) >= end(before) + delay``.

    Shape: ``table_of`` [activities]; ``before``, ``after``, ``delay_s`` [precedences].

    Raises:
        SolverError: no activities, an index out of range, a negative delay. Cycles are found when solving.
    """

    tables: tuple[OptionTable, ...]
    table_of: Indices
    before: Indices
    after: Indices
    delay_s: Floats

    def __post_init__(self) -> None:
        for name in ("table_of", "before", "after"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int32))
        object.__setattr__(self, "delay_s", np.ascontiguousarray(self.delay_s, dtype=np.float64))
        if not len(self.table_of):
            raise SolverError("the problem has no activities")
        if not len(self.before) == len(self.after) == len(self.delay_s):
            raise SolverError(
                f"{len(self.before)} before, {len(self.after)} after and {len(self.delay_s)} delays,"
                " expected one of each per precedence"
            )
        _refuse("table of activity", self.table_of, _within(self.table_of, len(self.tables)))
        _refuse("before of precedence", self.before, _within(self.before, len(self)))
        _refuse("after of precedence", self.after, _within(self.after, len(self)))
        _refuse("delay of precedence", self.delay_s, np.isfinite(self.delay_s) & (self.delay_s >= 0.0))

    def __len__(self) -> int:
        return len(self.table_of)


def _within(index: Indices, count: int) -> NDArray[np.bool_]:
    return (index >= 0) & (index < count)


def _refuse(what: str, values: NDArray[np.float64] | Indices, good: NDArray[np.bool_]) -> None:
    """Name the first bad value."""
    if not good.all():
        where = int(np.argmin(good))
        raise SolverError(f"{what} {where} is {values[where]}", hint="finite, in range, not negative")
