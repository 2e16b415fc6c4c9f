"""How often lanes may change: by the second, and as whole changes in an iteration, rung below rung."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from perseus_ds.solver.problem import Floats, Indices, Ints

UNLIMITED = np.int64(2**62)
_DENSE, _STEP = 8, 1.15


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """How often lanes may change level: each by itself, and all of a group together; None is without limit.

    Units: changes per second.
    Shape: ``group_of`` [lanes].
    """

    lane_per_s: float | None = None
    group_per_s: float | None = None
    group_of: Indices | None = None

    def within(self, time_s: float, lanes: int) -> Rung:
        """Whole changes in an iteration of that length."""
        group_of = np.zeros(lanes, np.int32) if self.group_of is None else self.group_of
        lane, group = (
            None if per_s is None else int(per_s * time_s * (1.0 + 1e-12))
            for per_s in (self.lane_per_s, self.group_per_s)
        )
        return Rung(lane, group, group_of)


@dataclass(frozen=True, slots=True, eq=False)
class Rung:
    """So many changes in an iteration at most: of a lane, and of all lanes of a group; None is without limit.

    Shape: ``group_of`` [lanes].
    """

    lane: int | None
    group: int | None
    group_of: Indices

    @property
    def none(self) -> bool:
        """Whether not even one lane may change."""
        return 0 in {self.lane, self.group}

    def down(self) -> Iterator[Rung]:
        """Itself, rounded down, and one stricter rung after the other: the same ones whoever asks.

        Where lanes and groups are limited only lanes get stricter.
        """
        for lane in _ladder(self.lane):
            for group in _ladder(self.group) if self.lane is None else _ladder(self.group)[:1]:
                yield replace(self, lane=lane, group=group)

    def from_itself(self) -> Iterator[Rung]:
        """Itself, and what is below it, each once."""
        yield self
        yield from (rung for rung in self.down() if (rung.lane, rung.group) != (self.lane, self.group))

    def limits(self) -> tuple[Floats, Floats]:
        """Changes of each lane, and of each group.

        Shape: [lanes], [groups].
        """
        lane = np.inf if self.lane is None else float(self.lane)
        group = np.inf if self.group is None else float(self.group)
        return np.full(len(self.group_of), lane), np.full(int(self.group_of.max()) + 1, group)

    def spare(self, changes: Ints) -> Ints:
        """How many changes each lane may still make; those of a group are shared out evenly.

        Shape: [lanes].
        """
        left = np.full(len(changes), UNLIMITED)
        if self.lane is not None:
            left = self.lane - changes
        if self.group is not None:
            together = np.bincount(self.group_of, weights=changes)
            each = (self.group - together) // np.bincount(self.group_of)
            left = np.minimum(left, each[self.group_of].astype(np.int64))
        return left

    def allows(self, changes: Ints) -> bool:
        """Whether so many changes of each lane are allowed.

        Shape: [lanes].
        """
        return bool((self.spare(changes) >= 0).all())

    def part(self, share: float) -> Rung:
        """A share of the changes, at least one."""
        lane, group = (
            None if most is None else max(1, round(share * most)) for most in (self.lane, self.group)
        )
        return replace(self, lane=lane, group=group)


def _ladder(limit: int | None) -> list[int | None]:
    """Numbers of changes that are searched for, the limit's own rung first; not the one without changes."""
    if limit is None:
        return [None]
    rungs, rung = [], 1
    while rung <= limit:
        rungs.append(rung)
        rung = rung + 1 if rung < _DENSE else round(rung * _STEP)
    return list(reversed(rungs)) or [0]
