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
        """Append the first ``count`` of a stretch."""
        for row in range(count):
            if self.kept[-1] % self._stride or found.total[row] >= self.until:
                self._forget(len(self.kept) - 1)
            self.kept.append(len(self.total))
            self.total.append(int(found.total[row]))
            self.price.append(int(found.price[row]))
            self.event.append(found.event[row].copy())
            self.flow.append(found.flow[row].copy())
            self._fit(self.event[-1].nbytes + self.flow[-1].nbytes)

    def _forget(self, place: int) -> None:
        del self.kept[place], self.event[place], self.flow[place]

    def _fit(self, each: int) -> None:
        if each * len(self.kept) <= MEMORY or len(self.kept) < 3:  # noqa: PLR2004 - two ends and a middle
            return
        self._stride *= 2
        for place in range(len(self.kept) - 2, 0, -1):
            if self.kept[place] % self._stride:
                self._forget(place)
