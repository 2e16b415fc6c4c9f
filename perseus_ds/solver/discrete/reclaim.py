"""Give the time that rounding gained to activities that can still become slower."""

# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower

from __future__ import annotations

import numpy as np

from perseus_ds.solver.compiling.compiled import compiled
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.paths import Graph, earliest_starts, latest_starts
from perseus_ds.solver.problem import Floats, Ints


def reclaimed(frontier: Frontier, duration_s: Floats, time_s: float, least_part_s: float) -> Ints:
    """Lengthen what has slack, dearest first, up to the slowest option; in ticks.

    An activity that may not be split stops at an option, any other where its slack ends.

    Cost: linear in activities for each that has slack.
    """
    whole = frontier.whole
    problem = whole.problem
    duration = np.floor(whole.tick.whole(duration_s)).astype(np.int64)
    end = max(int(whole.tick.whole(np.array(time_s))), whole.longest(duration))
    hulls = whole.hulls
    least_j = np.array([hull.cost_j[-1] for hull in hulls])[problem.table_of]
    cost_j = np.empty(len(problem))
    for number, hull in enumerate(hulls):
        mine = problem.table_of == number
        cost_j[mine] = hull.cost_at(whole.tick.real(duration[mine]))
    room = np.maximum(whole.slowest - duration, 1)
    order = np.argsort((least_j - cost_j) / room, kind="stable")
    first = np.concatenate(([0], np.cumsum([len(hull.option) for hull in hulls]))).astype(np.int64)
    lengths = np.concatenate([whole.tick.whole(hull.duration_s) for hull in hulls])
    least = int(whole.tick.whole(np.array(least_part_s)))
    _lengthen(
        whole.graph,
        whole.delay,
        duration,
        end,
        order,
        problem.table_of.astype(np.int64),
        first,
        lengths,
        least,
    )
    return duration


@compiled
def _lengthen(
    graph: Graph,
    delay: Ints,
    duration: Ints,
    end: int,
    order: Ints,
    table_of: Ints,
    first: Ints,
    lengths: Ints,
    least: int,
) -> None:
    free = np.zeros(0, dtype=np.bool_)
    late = latest_starts(graph, delay, duration, end, free, duration)
    soon = earliest_starts(graph, delay, duration, free, duration)
    for one in order:
        most = duration[one] + late[one] - soon[one]
        bottom, above = first[table_of[one]], first[table_of[one] + 1]
        at = bottom
        while at + 1 < above and lengths[at + 1] <= most:
            at += 1
        longer = lengths[at]
        if (
            at + 1 < above
        ):  # split behind the option: as much of the slower one as fits, both parts long enough
            fast, slow = lengths[at], lengths[at + 1]
            part = (most - fast) / (slow - fast)
            if part > 0.0 and fast > 0:
                part = min(part, 1.0 - least / fast)
                if part * slow >= least:
                    longer = fast + np.int64(part * (slow - fast))
        if longer > duration[one]:
            duration[one] = longer
            late = latest_starts(graph, delay, duration, end, free, duration)
            soon = earliest_starts(graph, delay, duration, free, duration)
