"""A place for every activity, in the order of the relaxed plan: the best partial plans go on side by side."""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.front import front_for, rows_of, scratch_for
from perseus_ds.solver.beam.guide import Guide
from perseus_ds.solver.beam.levels import LaneOutlook, Levels
from perseus_ds.solver.beam.turns import Origins, Search, run
from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.network import Graph
from perseus_ds.solver.problem import Indices, Ints


def beam(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    guide: Guide,
    width: int,
    leaning: float,
    levels: Levels | None = None,
    outlook: LaneOutlook | None = None,
) -> Indices:
    """Choose a place for every activity; every end is early enough for the wanted time.

    For a conserved flow, cost above the relaxed bound is a sum of parts that are never negative. Each option
    adds what it costs at the flow's price above the best; every wait adds its toll. So partial plans over the
    same activities compare fairly, and ``width`` of them go on. ``leaning`` is the share of the strain that
    counts against one: ends out of step will cost tolls later. Where changes of level cost, the sum has what
    every lane still has to pay from its state on. So a plan that has paid for a change and one that has not
    yet compare fairly.

    Shape: returns [activities].
    Cost: activities times width times options in the band.
    """
    count = len(guide.order)
    levels = Levels.none(count, len(choices.length)) if levels is None else levels
    outlook = LaneOutlook.none() if outlook is None else outlook
    row_of = np.empty(count, dtype=np.int32)
    rows = rows_of(graph, guide.order, row_of)
    fronts = front_for(width, rows, outlook.home), front_for(width, rows, outlook.home)
    fronts[0].togo[0] = sum(outlook.ahead[lane, 0, state] for lane, state in enumerate(outlook.home))
    trail = Origins(*np.empty((2, count, width), dtype=np.int32))
    search = Search(graph, delay, choices, levels, guide, outlook, row_of, leaning)
    scratch = scratch_for(width, int((guide.high - guide.low).max() + 3))
    filled = run(search, *fronts, scratch, trail)
    front = fronts[count % 2]
    last = np.flatnonzero(np.diff(graph.first_after) == 0)
    paid = front.spent[:filled] + front.togo[:filled] - guide.price[last] @ front.end[row_of[last], :filled]
    return _trace_back(guide.order, trail, int(np.argmin(paid)))


@compiled
def _trace_back(order: Indices, trail: Origins, last: int) -> Indices:
    chosen = np.empty(len(order), dtype=np.int32)
    for turn in range(len(order) - 1, -1, -1):
        chosen[order[turn]] = trail.place[turn, last]
        last = trail.origin[turn, last]
    return chosen
