"""The breakpoints that a sweep has found, and snapshots of as many of them as memory allows."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import State
from perseus_ds.solver.parametric.sweep import Breakpoints
from perseus_ds.solver.problem import Ints

MEMORY = 2**29
"""Bytes that snapshots may take; when they would take more, every second one is dropped."""


class Trail:
    """Breakpoints, time falling; those numbered in ``kept`` have a snapshot.

    Of the breakpoints longer than ``until`` only the last keeps its snapshot; the newest always does.

    Units: ticks and units of price.
    """

    def __init__(self, until: int, state: State) -> None:
        event = state.nodes["time"][state.place]
        self.until = until
        self.total: list[int] = [int(event[SINK] - event[SOURCE])]
        self.price: list[int] = [0]
        self.kept: list[int] = [0]
        self.event: list[Ints] = [event]
        self.flow: list[Ints] = [np.zeros(len(state.arcs), np.int64)]
        self._stride = 1

    def add(self, found: Breakpoints, count: int) -> None:
        """Append the first ``count`` of a stretch, whose memory is the trail's from now on.

        The newest of a stretch stays; of the others what the one behind it would drop is not kept at all.
        """
        for row in range(count):
            number, total = len(self.total), int(found.total[row])
            if self.kept and (self.kept[-1] % self._stride or total >= self.until):
                self._forget(len(self.kept) - 1)
            self.total.append(total)
            self.price.append(int(found.price[row]))
            if row + 1 == count or not (number % self._stride or found.total[row + 1] >= self.until):
                self._keep(number, found.event[row], found.flow[row])

    def snapshots(self) -> tuple[Ints, Ints]:
        """Hand over event times and flows, time ascending, so that they are in memory once.

        Shape: [snapshots, nodes], [snapshots, arcs].
        """
        return _taken_out(self.event), _taken_out(self.flow)

    def _keep(self, number: int, event: Ints, flow: Ints) -> None:
        self.kept.append(number)
        self.event.append(event if self._stride == 1 else event.copy())
        self.flow.append(flow if self._stride == 1 else flow.copy())
        self._fit(event.nbytes + flow.nbytes)

    def _forget(self, place: int) -> None:
        del self.kept[place], self.event[place], self.flow[place]

    def _fit(self, each: int) -> None:
        if each * len(self.kept) <= MEMORY or len(self.kept) < 3:  # noqa: PLR2004 - two ends and a middle
            return
        self._stride *= 2
        for place in range(len(self.kept) - 2, 0, -1):
            if self.kept[place] % self._stride:
                self._forget(place)
        self.event[:] = map(np.copy, self.event)  # a row alone holds the memory of its whole stretch
        self.flow[:] = map(np.copy, self.flow)


def _taken_out(rows: list[Ints]) -> Ints:
    """Stack rows, the last first, each given back once it is copied."""
    stacked = np.empty((len(rows), len(rows[0])), rows[0].dtype)
    for place in range(len(rows)):
        stacked[place] = rows.pop()
    return stacked
