"""How late this rank's GPU is among its peers, iteration by iteration, from marks and the energy counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from perseus_ds.profile import CounterTrace
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.straggler.peers import PeerLateness, Ran

BEHIND = 1
"""Iterations by which a lateness is older than the iteration itself: the counter has to pass its end."""

_KEPT = 8


@dataclass(frozen=True, slots=True)
class _Open:
    iteration: Iteration
    computing_s: float
    capped: bool


class OwnLateness:
    """Take in what passed, and return how much longer this GPU itself computed in an iteration.

    ``trace`` is the energy counter's since a moment, ``capped`` whether the GPU was held below its clock.
    Only iterations that a plan ran count, against others at the same clocks (`will_run`).
    """

    def __init__(self, trace: Callable[[float], CounterTrace], capped: Callable[[Iteration], bool]) -> None:
        self._trace = trace
        self._capped = capped
        self._lateness = PeerLateness()
        self._keys: dict[int, Hashable] = {}
        self._open: list[_Open] = []
        self._late: dict[int, float | None] = {}
        self._passed_s = -math.inf

    @property
    def unread_s(self) -> float:
        """Where the part of the trace begins that is still to be read."""
        return self._open[0].iteration.start_s if self._open else self._passed_s

    def expect(self, blocking_w: float) -> None:
        """Know what this GPU draws while it waits."""
        self._lateness.expect(blocking_w)

    def will_run(self, index: int, key: Hashable) -> None:
        """Note the clocks that iteration ``index`` is run by."""
        self._keys[index] = key

    def note(self, passed: Iterable[Iteration]) -> None:
        """Take in iterations that the device has finished."""
        for iteration in passed:
            self._passed_s = iteration.end_s
            if iteration.index in self._keys and not (
                iteration.void or iteration.resumed or iteration.skipped
            ):
                computing_s = sum(i.duration_s for i in iteration.intervals if i.kind.is_computation)
                self._open.append(_Open(iteration, computing_s, self._capped(iteration)))
        while self._open and self._settled(self._open[0]):
            self._open.pop(0)

    def of(self, index: int) -> float | None:
        """Return how late this rank was in an iteration, once; None where that is not known."""
        found = self._late.pop(index, None)
        for older in [one for one in self._keys if one < index - _KEPT]:
            self._keys.pop(older)
            self._late.pop(older, None)
        return found

    def _settled(self, one: _Open) -> bool:
        """Whether the counter has passed it, so that its energy is known; or never will be."""
        iteration = one.iteration
        trace = self._trace(iteration.start_s)
        if not len(trace) or trace.time_s[-1] < iteration.end_s:
            return len(self._open) > _KEPT
        key = self._keys.get(iteration.index)
        if trace.covers(iteration.start_s, iteration.end_s) and one.computing_s > 0.0 and key is not None:
            energy_j = trace.energy_between(iteration.start_s, iteration.end_s)
            ran = Ran(iteration.end_s - iteration.start_s, one.computing_s, energy_j, one.capped)
            self._late[iteration.index] = self._lateness.of(ran, key)
        return True
