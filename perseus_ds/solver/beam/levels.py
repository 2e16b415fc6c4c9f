"""Which activities take turns at one lane, and at which level each place runs them."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from perseus_ds.solver.problem import Indices


class Levels(NamedTuple):
    """Lanes as compiled code reads them, with the places of one ``Choices``.

    ``lane`` and ``at`` say where an activity runs (-1: nowhere) and as which of its lane; ``level`` is that
    of a place, ``place`` the place of a table's option at a level (-1: it has none there), ``table`` an
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
