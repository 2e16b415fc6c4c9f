"""Which activities take turns at one lane, at which level each place runs them, and what is to pay."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from perseus_ds.solver.problem import Floats, Indices


class Levels(NamedTuple):
    """Lanes as compiled code reads them, with the places of one ``Choices``.

    ``lane`` and ``at`` state where an activity runs (-1: nowhere) and as which of its lane. ``level`` is that
    of a place, ``place`` the place of a table's option at a level (-1: it has none there). ``table`` is an
    activity's table. No level is held for less than ``dwell`` ticks.

    Shape: ``lane``, ``at``, ``table`` [activities]; ``level`` [places]; ``place`` [tables, levels].
    """

    lane: Indices
    at: Indices
    table: Indices
    level: Indices
    place: Indices
    dwell: int

    @classmethod
    def none(cls, activities: int, places: int) -> Self:
        """Every activity by itself."""
        nowhere, zero = np.full(activities, -1, np.int32), np.zeros(activities, np.int32)
        return cls(nowhere, zero, zero, np.zeros(places, np.int32), np.zeros((1, 1), np.int32), 0)


class LaneOutlook(NamedTuple):
    """What every lane has to pay yet, by its place in its order and its state there, and for a change.

    A state is a level and how many changes are left: ``left * levels + level``; where changes are not
    counted none is ever left. Every lane begins in the state ``home``.

    Shape: ``ahead`` [lanes, longest order + 1, states]; ``toll``, ``home`` [lanes]. Of no lanes the first
    two have one that nobody reads.
    """

    ahead: Floats
    toll: Floats
    home: Indices
    extra: float

    @classmethod
    def none(cls) -> Self:
        """No lanes."""
        return cls(np.zeros((1, 2, 1)), np.zeros(1), np.zeros(0, np.int32), 0.0)
