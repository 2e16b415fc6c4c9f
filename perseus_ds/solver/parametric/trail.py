"""The breakpoints that a sweep has found, and snapshots of those wanted, as many as memory allows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import State
from perseus_ds.solver.parametric.sweep import Breakpoints
from perseus_ds.solver.problem import Ints

MEMORY = 2**29
"""Bytes that snapshots may take; when they would take more, every second one is dropped."""

FEW = 8
"""Snapshots that fill less than this part of the memory are copied out of it."""


class Trail:
    """Breakpoints, time falling; those numbered in ``kept`` have a snapshot.

    The newest always does. Of the others whose number ``stride`` divides those do whose neighbours ``wanted``
    accepts: totals of the shorter and of the longer one.

    Units: ticks and units of price.
    """

    def __init__(self, wanted: Callable[[int, int], bool], state: State) -> None:
        event = state.nodes["time"]
        rows = max(MEMORY // (8 * (len(event) + len(state.arcs))), 2) + 1
        self.total: list[int] = [int(event[SINK] - event[SOURCE])]
        self.price: list[int] = [0]
        self.kept: list[int] = []
        self.stride = 1
        self._wanted = wanted
        self._event = np.empty((rows, len(event)), np.int64)  # the system gives memory when it is written to
        self._flow = np.empty((rows, len(state.arcs)), np.int64)
        self._keep(event, np.zeros(len(state.arcs), np.int64))

    def add(self, found: Breakpoints, count: int) -> None:
        """Append the first ``count`` of a stretch, and copy the snapshots that stay.

        The newest of a stretch stays until the next one comes.
        """
        for row in range(count):
            total = int(found.total[row])
            if self.kept[-1:] == [len(self.total) - 1] and not self._stays(total):
                self.kept.pop()
            self.total.append(total)
            self.price.append(int(found.price[row]))
            if row + 1 == count or self._stays(int(found.total[row + 1])):
                self._keep(found.event[row], found.flow[row])

    def snapshots(self) -> tuple[Ints, Ints]:
        """Return event times and flows, time ascending; few are copied: they do not hold all the memory.

        Shape: [snapshots, nodes], [snapshots, arcs].
        """
        count = len(self.kept)
        event, flow = self._event[:count][::-1], self._flow[:count][::-1]
        return (event.copy(), flow.copy()) if FEW * count < len(self._event) else (event, flow)

    def _stays(self, shorter: int) -> bool:
        """Whether the newest keeps its snapshot when one of this total follows it."""
        number = len(self.total) - 1
        return number % self.stride == 0 and self._wanted(shorter, self.total[max(number - 1, 0)])

    def _keep(self, event: Ints, flow: Ints) -> None:
        row = len(self.kept)
        self._event[row], self._flow[row] = event, flow
        self.kept.append(len(self.total) - 1)
        if len(self.kept) == len(self._event):
            self._thin()

    def _thin(self) -> None:
        """Drop every second snapshot, but not the ends."""
        self.stride *= 2
        last = len(self.kept) - 1
        stay = [row for row, number in enumerate(self.kept) if row in {0, last} or number % self.stride == 0]
        for to, row in enumerate(stay):
            self._event[to], self._flow[to] = self._event[row], self._flow[row]
        self.kept[:] = [self.kept[row] for row in stay]
