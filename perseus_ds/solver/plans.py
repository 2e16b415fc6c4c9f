"""Plans: for every activity one option, or two of which the first does a share of the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from perseus_ds.solver.problem import Floats, Indices, Problem


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
    def stacked(cls, sets: Sequence[Plans]) -> Plans:
        """All plans of several sets, one behind the other: in no order."""
        names = [one.name for one in fields(cls)]
        return cls(*(np.concatenate([getattr(plans, name) for plans in sets]) for name in names))

    def at(self, which: Indices) -> Plans:
        """Return some of them."""
        return Plans(
            self.time_s[which],
            self.cost_j[which],
            self.bound_j[which],
            self.choice[which],
            self.other[which],
            self.share[which],
        )


def blended(problem: Problem, choice: Indices, other: Indices, share: Floats) -> tuple[Floats, Floats]:
    """Duration and cost of every activity.

    Shape: all alike, activities last.
    """
    first = np.concatenate(([0], np.cumsum([len(table) for table in problem.tables])))[problem.table_of]
    duration_s = np.concatenate([table.duration_s for table in problem.tables])
    cost_j = np.concatenate([table.cost_j for table in problem.tables])

    def mixed(values: Floats) -> Floats:
        whole = values[first + choice]
        return np.where(share < 1.0, share * whole + (1.0 - share) * values[first + other], whole)

    return mixed(duration_s), mixed(cost_j)


def undominated(time_s: Floats, cost_j: Floats) -> Indices:
    """Positions of the plans that no other beats in both time and cost, time ascending."""
    order = np.lexsort((cost_j, time_s))
    best_before = np.minimum.accumulate(np.concatenate(([np.inf], cost_j[order][:-1])))
    return order[cost_j[order] < best_before].astype(np.int32)
