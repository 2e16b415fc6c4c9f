"""The problem as its user states it, and plans for it: activities with options on a graph of precedences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import SolverError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.int32]
GRAIN = 2**20
"""Shares of work are whole multiples of 1 / GRAIN: less than any clock change can be timed by."""


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
        for what, index, count in (
            ("table of activity", self.table_of, len(self.tables)),
            ("before of precedence", self.before, len(self)),
            ("after of precedence", self.after, len(self)),
        ):
            _refuse(what, index, (index >= 0) & (index < count))
        _refuse("delay of precedence", self.delay_s, np.isfinite(self.delay_s) & (self.delay_s >= 0.0))

    def __len__(self) -> int:
        return len(self.table_of)

    def members(self) -> list[NDArray[np.intp]]:
        """Return the activities of every table."""
        counts = np.bincount(self.table_of, minlength=len(self.tables))
        return np.split(np.argsort(self.table_of, kind="stable"), np.cumsum(counts)[:-1])


def _refuse(what: str, values: NDArray[np.float64] | Indices, good: NDArray[np.bool_]) -> None:
    """Name the first bad value."""
    if not good.all():
        where = int(np.argmin(good))
        raise SolverError(f"{what} {where} is {values[where]}", hint="finite, in range, not negative")


# Plans: for every activity one option, or two of which the first does a share of the work.


@dataclass(frozen=True, slots=True, eq=False)
class Plans:
    """Plans, time ascending and cost falling.

    ``time_s`` is the longest path, ``bound_j`` a lower bound on the cost of every plan that takes no longer.
    ``choice`` and ``other`` are positions in the activities' option tables. ``share`` of an activity's work
    is done at ``choice``, the rest at ``other``; time and cost are linear in it. Where the activity is not
    split both are the same and the share is 1.

    Shape: ``time_s``, ``cost_j``, ``bound_j`` [plans]; ``choice``, ``other``, ``share`` [plans, activities].
    """

    time_s: Floats
    cost_j: Floats
    bound_j: Floats
    choice: Indices
    other: Indices
    share: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    @classmethod
    def stack(cls, sets: Sequence[Plans]) -> Plans:
        """All plans of several sets, one behind the other: in no order."""
        return cls(*(np.concatenate([getattr(plans, one.name) for plans in sets]) for one in fields(cls)))

    def at(self, which: Indices) -> Plans:
        return Plans(*(getattr(self, one.name)[which] for one in fields(self)))


def blend(problem: Problem, choice: Indices, other: Indices, share: Floats) -> tuple[Floats, Floats]:
    """Duration and cost of every activity.

    Shape: all alike, activities last.
    """
    first = np.concatenate(([0], np.cumsum([len(table) for table in problem.tables])))[problem.table_of]
    duration_s = np.concatenate([table.duration_s for table in problem.tables])
    cost_j = np.concatenate([table.cost_j for table in problem.tables])

    def mix(values: Floats) -> Floats:
        whole = values[first + choice]
        return np.where(share < 1.0, share * whole + (1.0 - share) * values[first + other], whole)

    return mix(duration_s), mix(cost_j)


def pareto_front(time_s: Floats, cost_j: Floats) -> Indices:
    """Positions of the plans that no other beats in both time and cost, time ascending."""
    order = np.lexsort((cost_j, time_s))
    best_before = np.minimum.accumulate(np.concatenate(([np.inf], cost_j[order][:-1])))
    return order[cost_j[order] < best_before].astype(np.int32)


def long_enough(fast: Floats, fast_s: Floats, slow_s: Floats, least_s: float) -> Floats:
    """Share of the faster option: more of it, or all, where a part would be too short; none stays none."""
    if least_s <= 0.0:
        return np.minimum(1.0, np.ceil(fast * GRAIN) / GRAIN)
    alone = np.divide(least_s, fast_s, out=np.full_like(fast_s, np.inf), where=fast_s > 0.0)
    more = np.where((fast > 0.0) & (fast < 1.0), np.maximum(fast, alone), fast)
    more = np.ceil(more * GRAIN) / GRAIN
    return np.where((more <= 0.0) | ((1.0 - more) * slow_s >= least_s), more, 1.0)


# How often the machine of a lane (activities that share it, in turn) may change its level.

UNLIMITED = 2**40
"""More changes than any lane has."""
DENSE, STEP = 8, 1.15
"""Stricter budgets than a given one: all of so few changes, then each of so many times more."""


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Activities that share a machine, and the level at which each of their options runs it.

    ``orders``: the activities of each lane in running order, over and over again: the last is followed by the
    first. ``level_of``: for every table the level of each option, 0 the highest; empty where its activities
    have no lane.
    """

    orders: tuple[Indices, ...]
    level_of: tuple[Indices, ...]

    def __len__(self) -> int:
        return len(self.orders)


class Budget(NamedTuple):
    """Changes of each lane, and of all lanes of a group, in one iteration at most.

    Shape: ``group_of`` [lanes].
    """

    lane: int
    group: int
    group_of: Indices

    def changes_left(self, changes: Ints, *, shared: bool = False) -> Ints:
        """Return how many changes each lane may still make, alone or with those of its group ``shared`` out.

        Negative where it, or its group, makes too many.
        """
        of_group = self.group - np.bincount(self.group_of, weights=changes).astype(np.int64)
        if shared:
            of_group //= np.bincount(self.group_of)
        return np.minimum(self.lane - changes, of_group[self.group_of])

    def ladder(self) -> list[Budget]:
        """Return stricter budgets of its kind, the strictest first: the same ones for all that are looser."""
        most, rungs = self.lane if self.lane < UNLIMITED else self.group, [0]
        while (rung := rungs[-1] + 1 if rungs[-1] < DENSE else round(STEP * rungs[-1])) <= most:
            rungs.append(rung)
        if self.lane < UNLIMITED:
            return [self._replace(lane=rung) for rung in rungs]
        return [self._replace(group=rung) for rung in rungs]

    def allows(self, changes: Ints) -> bool:
        """Return whether so many changes of each lane are within the budget."""
        return bool((self.changes_left(changes) >= 0).all())


def changes_between(begin: NDArray[np.integer[Any]], end: NDArray[np.integer[Any]]) -> Ints:
    """Count a lane's changes in an iteration, the way back to its beginning included.

    Shape: levels that its activities begin and end at [plans, activities]; returns [plans].
    """
    return np.asarray((begin != np.roll(end, 1, axis=1)).sum(axis=1) + (begin != end).sum(axis=1))
