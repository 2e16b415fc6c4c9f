"""Longest paths of one graph, again and again: what does not change from one pass to the next is prepared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseus_ds.schedule.graph import Graph, Seconds

_BEGIN = 0  # the place of what all wait for


class LongestPaths:
    """When every node ends if nothing waits longer than it must, for one set of durations after another.

    ``delay`` [edges] is as in `starts`. Nodes that wait for more than two others get places between that last
    for no time. So a pass looks at two places for each.

    Cost: a pass takes about 0.08 us for each node, some twelve times less than `starts`.
    """

    def __init__(self, graph: Graph, delay: Sequence[float]) -> None:
        nodes = len(graph.first_before) - 1
        self._place = np.zeros(nodes, dtype=np.intp)
        self._first: list[int] = []
        self._second: list[int] = []
        self._delay: list[float] = []
        begin, before, edges = graph.first_before.tolist(), graph.before.tolist(), graph.before_arc.tolist()
        for node in graph.order.tolist():
            rows = range(begin[node], begin[node + 1])
            self._add(sorted((delay[edges[row]], int(self._place[before[row]])) for row in rows))
            self._place[node] = len(self._first)
        followed = np.diff(graph.first_after) > 0
        self._ends = self._place[~followed].tolist()
        self._lasts = np.zeros(len(self._first))

    def _add(self, waits_for: list[tuple[float, int]]) -> None:
        """Add the place of a node that waits for some places, each with its delay, the least delay first."""
        here = _BEGIN
        if waits_for and waits_for[0][0] == 0.0:
            _, here = waits_for.pop(0)
        while len(waits_for) > 1:
            here = self._put(here, waits_for.pop(0))
        self._put(here, waits_for[0] if waits_for else (0.0, here))

    def _put(self, first: int, second: tuple[float, int]) -> int:
        self._first.append(first)
        self._second.append(second[1])
        self._delay.append(second[0])
        return len(self._first)

    def place(self, node: int) -> int:
        """Return where a node's end stands in `ends`."""
        return int(self._place[node])

    def ends(self, lasts: Seconds) -> list[float]:
        """Return the ends of all places.

        Shape: ``lasts`` [nodes]; returns [places + 1], the first of them the begin.
        """
        self._lasts[self._place - 1] = lasts
        ends = [0.0]
        add = ends.append
        for first, second, late, own in zip(
            self._first, self._second, self._delay, self._lasts.tolist(), strict=True
        ):
            one, other = ends[first], ends[second] + late
            add((one if one > other else other) + own)  # noqa: FURB136  # a call costs as much as the rest
        return ends

    def over(self, ends: Sequence[float]) -> float:
        """Return when all is over."""
        return max((ends[place] for place in self._ends), default=0.0)
