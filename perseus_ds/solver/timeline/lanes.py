"""Lanes: activities that one machine runs one after the other, at levels that their options share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.errors import SolverError
from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.network import Whole
from perseus_ds.solver.problem import Indices, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Which activities share a machine, and at which level each of their options runs it.

    ``orders``: the activities of each lane in running order, over and over again: the last is followed by
    the first. ``level_of``: for every table the level of each option, 0 the highest; empty where a table has
    none. No level is held for less than ``dwell_s``.

    Raises:
        SolverError: a table with another number of levels than options, or a time that is no time.
    """

    orders: tuple[Indices, ...]
    level_of: tuple[Indices, ...]
    dwell_s: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.dwell_s) and self.dwell_s >= 0.0):
            raise SolverError(
                f"lanes: dwell_s is {self.dwell_s!r}", hint="expected a finite number, 0 or more"
            )

    def __len__(self) -> int:
        return len(self.orders)


def leveled(whole: Whole, lanes: Lanes) -> tuple[Choices, Levels]:
    """Pack the options of all levels that are on the hull of any table, fastest first."""
    kept = _kept_levels(whole, lanes)
    number = np.full(max(kept, default=0) + 1, -1, dtype=np.int32)
    number[kept] = np.arange(len(kept))
    options, levels = zip(
        *(_options(whole, lanes, kept, table) for table in range(len(lanes.level_of))), strict=True
    )
    end = np.cumsum([len(option) for option in options])
    begin = np.concatenate(([0], end[:-1]))
    table_of = whole.problem.table_of
    tables = whole.problem.tables
    choices = Choices(
        first=begin[table_of].astype(np.int32),
        last=(end - 1)[table_of].astype(np.int32),
        length=whole.tick.whole(
            np.concatenate([t.duration_s[o] for t, o in zip(tables, options, strict=True)])
        ),
        cost=np.concatenate([t.cost_j[o] for t, o in zip(tables, options, strict=True)]),
        option=np.concatenate(options).astype(np.int32),
    )
    level = np.concatenate(
        [
            number[own] if len(own) else np.zeros(len(o), np.int32)
            for own, o in zip(levels, options, strict=True)
        ]
    )
    place = np.full((len(tables), max(len(kept), 1)), -1, dtype=np.int32)
    for table, own in enumerate(levels):
        place[table, number[own]] = begin[table] + np.arange(len(own))
    lane, at = np.full(len(table_of), -1, np.int32), np.zeros(len(table_of), np.int32)
    for which, order in enumerate(lanes.orders):
        lane[order], at[order] = which, np.arange(len(order))
    dwell = int(whole.tick.whole(np.array(lanes.dwell_s)))
    return choices, Levels(lane, at, table_of, level.astype(np.int32), place, dwell)


def _kept_levels(whole: Whole, lanes: Lanes) -> list[int]:
    found: set[int] = set()
    for hull, levels in zip(whole.hulls, lanes.level_of, strict=True):
        found.update(levels[hull.option].tolist() if len(levels) else ())
    return sorted(found)


def _options(whole: Whole, lanes: Lanes, kept: list[int], table: int) -> tuple[Ints, Indices]:
    """A table's options at the kept levels, fastest first, and their levels."""
    levels = lanes.level_of[table]
    if not len(levels):
        return np.argsort(whole.problem.tables[table].duration_s, kind="stable")[:1], levels
    mine = np.flatnonzero(np.isin(levels, kept))
    mine = mine[np.argsort(whole.problem.tables[table].duration_s[mine], kind="stable")]
    return mine, levels[mine]
