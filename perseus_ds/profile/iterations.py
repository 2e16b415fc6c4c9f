"""Durations of computations that nobody sees, found from how long whole iterations last.

Each rank's clock is lowered in turn. The longest path through the schedule's graph then holds as much more of
that rank's work as the iteration is longer: one equation for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile.records import Interval
from perseus_ds.schedule import Kind, Schedule, dag_of
from perseus_ds.schedule.dag import LongestPaths

_FORWARDS = {
    Kind.FORWARD: 1.0,
    Kind.BACKWARD: 2.0,
    Kind.BACKWARD_INPUT: 1.0,
    Kind.BACKWARD_WEIGHT: 1.0,
    Kind.FORWARD_BACKWARD: 3.0,
    Kind.UNKNOWN_COMPUTE: 1.0,
}
"""Matrix products of each kind, in those of a forward: the shares of a rank's time that are not measured."""
_ROUNDS = 50
_PARTS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Of a step, the first that brings the model nearer: a whole one may lead beyond the next kink of a path."""


class IterationModel:
    """Durations of a schedule's computations as ``rank_s`` times shares by stage and kind that are given.

    ``weights`` are what model stages compute; stages of one rank share its time by them. Transfers count as
    computations' own.

    Shape: ``weights`` [model stages].
    """

    def __init__(self, schedule: Schedule, weights: Mapping[int, float]) -> None:
        dag = dag_of(schedule)
        self._paths = LongestPaths(dag.graph, [0.0] * len(dag.edges))
        self._orders, self._node = schedule.orders, {one: at for at, one in enumerate(dag.nodes)}
        rank_of = {one: rank for rank, order in enumerate(schedule.orders) for one in order}
        self._rank = np.array([rank_of[one] for one in dag.nodes])
        self._share = np.array(
            [_FORWARDS.get(n.kind, 0.0) * (weights.get(n.stage) or 1.0) for n in dag.nodes]
        )
        self._share /= self._share.mean()
        self.rank_s = self._alike_s = 1.0 / np.bincount(self._rank, self._share)

    def fit(self, whole_s: float, slowed_s: Sequence[float], slower: float) -> float:
        """Take iterations of ``whole_s`` with all ranks alike, and those with one after the other ``slower``.

        Newton's method on the longest path, which is piecewise linear in the ranks' times.

        Returns by what share an iteration is longer or shorter than the model's, at most.

        Shape: ``slowed_s`` [ranks].
        Cost: a pass over the graph for each rank, some ten times.
        """
        ranks = len(self.rank_s)
        factors = np.vstack([np.ones(ranks), 1.0 + (slower - 1.0) * np.eye(ranks)])
        seen_s = np.array([whole_s, *slowed_s])

        def shortfall(rank_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            longest = [self._longest(rank_s * factor) for factor in factors]
            return seen_s - [length_s for length_s, _ in longest], np.array(
                [work for _, work in longest]
            ) * factors

        self.rank_s = self._alike_s * whole_s / self._longest(self._alike_s)[0]
        missing_s, work = shortfall(self.rank_s)
        for _ in range(_ROUNDS):
            step_s = np.linalg.lstsq(work, missing_s, rcond=None)[0]
            for part in _PARTS:
                rank_s = np.maximum(self.rank_s + part * step_s, 0.5 * self.rank_s)
                left_s, work_there = shortfall(rank_s)
                if left_s @ left_s < missing_s @ missing_s:
                    break
            else:
                break
            self.rank_s, missing_s, work = rank_s, left_s, work_there
        return float(np.abs(missing_s / seen_s).max())

    def busy(self) -> list[float]:
        """Return the part of an iteration that each rank computes.

        Shape: [ranks].
        """
        work_s = np.bincount(self._rank, self._lasts(self.rank_s))
        return [float(share) for share in work_s / self._longest(self.rank_s)[0]]

    def intervals(self, rank: int, start_s: float, lasts_s: float) -> tuple[Interval, ...]:
        """Return when a rank's computations run in an iteration, all ranks at one clock.

        ``start_s`` is when the first rank begins, ``lasts_s`` until the last one ends.
        """
        lasts = self._lasts(self.rank_s)
        every = self._paths.ends(lasts)
        stretch, ends, found = lasts_s / self._paths.over(every), self._paths.of_nodes(every), []
        for one in self._orders[rank]:
            if one.kind.is_computation:
                node = self._node[one]
                end_s = start_s + stretch * float(ends[node])
                found.append(Interval(one, end_s - stretch * float(lasts[node]), end_s))
        return tuple(found)

    def _lasts(self, rank_s: NDArray[np.float64]) -> NDArray[np.float64]:
        lasts: NDArray[np.float64] = self._share * rank_s[self._rank]
        return lasts

    def _longest(self, rank_s: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return how long an iteration lasts, and each rank's part of the longest path in its own times."""
        ends = self._paths.ends(self._lasts(rank_s))
        path = self._paths.longest(ends)
        work = np.bincount(self._rank[path], weights=self._share[path], minlength=len(rank_s))
        return self._paths.over(ends), work.astype(np.float64)
