"""Pace replicas to the longest of the same iteration, by the loads of its microbatches.

`Forecast` predicts each replica's duration, `Pacing` returns how much slower each may run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.profile import Profile
from perseus_ds.schedule import Instruction, Load, dag_of
from perseus_ds.schedule.dag import LongestPaths
from perseus_ds.straggler.controller import sigmas_below

EXCESS_PACED = 0.0005  # how much longer iterations may become on average because predictions err
_Replicas = NDArray[np.float64]
_BEYOND = 1.96  # standard errors that one of fifty predictions may be off by
_USUALLY = 0.02
_STEP = 0.7  # of the scale's logarithm where all of an iteration's predictions are off by more
_LEAST, _MOST = 0.1, 1e3


class Pacing:
    """Answers the predictions of all replicas at the begin of an iteration; alike on all ranks.

    The margin is what the predictions' relative standard ``error`` asks for. It comes from the profile at
    first, and is then learned from how far predictions were off. Where they are off by too much it takes all
    slack: nobody is slowed by what is not known well. A NaN error slows nobody.

    The error is scaled such that one prediction in fifty is off by more than 1.96 of it (of normal errors it
    would be one in twenty): few replicas learn from few numbers, which repeat. That quantile is followed step
    by step, each of a bounded length, so that no single iteration moves it far. It rises 49 times faster than
    it falls.

    Source: H. Robbins and S. Monro, A stochastic approximation method (1951), for a quantile.
    """

    def __init__(self, error: float) -> None:
        self.error, self._scale = error, 1.0

    def stretches(self, predicted_s: _Replicas, *, max_s: float = np.inf) -> _Replicas:
        """Return how many times longer than at the objective's plan each replica may take.

        All aim at the end of the longest, or at ``max_s`` where that is earlier, less a margin. Replicas
        whose prediction is unknown (NaN) are not slowed. The longest of the others can only be earlier than
        that of all, so that the others still are.

        Errors of single computations add up as squares, so that of more work grows as the root.

        Shape: both [replicas]; 1 where there is no slack.
        Cost: a dozen vector operations.
        """
        known = np.isfinite(predicted_s)
        slowed, error = np.ones(len(predicted_s)), self.error * self._scale
        if np.count_nonzero(known) < 2 or not error > 0.0:  # noqa: PLR2004  # the longest, and one that waits
            return slowed
        ends_s = predicted_s[known]
        last = int(ends_s.argmax())
        longest_s = min(float(ends_s[last]), max_s)
        error_s = error * np.sqrt(ends_s * ends_s.mean())
        apart_s = np.hypot(error_s, error_s[last])
        apart_s[last] = 0.0
        stretch = np.maximum(1.0, (longest_s - margins_s(apart_s, EXCESS_PACED * longest_s)) / ends_s)
        stretch[last] = 1.0
        slowed[known] = stretch
        return slowed

    def learn(self, residual: _Replicas) -> None:
        """Take in how far the predictions of one iteration were off: measured by predicted, less 1.

        Shape: [replicas], NaN where that is unknown.
        """
        known = residual[np.isfinite(residual)]
        if not len(known) or not self.error > 0.0:
            return
        beyond = float((np.abs(known) > _BEYOND * self._scale * self.error).mean())
        self._scale = min(max(self._scale * math.exp(_STEP * (beyond - _USUALLY)), _LEAST), _MOST)


def margins_s(apart_s: _Replicas, late_s: float) -> _Replicas:
    """Return how far below the longest each replica aims, to be late by ``late_s`` on average together.

    A margin is z standard deviations, which are ``apart_s``, the same z for all: a normal number exceeds it
    by L(z) deviations on average.

    Shape: [replicas].
    """
    whole_s = float(apart_s.sum())
    if whole_s <= 0.0:
        return np.zeros(len(apart_s))
    margin_s: _Replicas = sigmas_below(late_s / whole_s) * apart_s
    return margin_s


# How long an iteration will take at the objective's plan, by the loads of its microbatches.

_DRAWS = 40
_LEAST_ERROR = 0.004  # of an iteration: no prediction is better
Floats = NDArray[np.float64]


class Forecast:
    """Durations of the objective's plan, times what microbatches' loads make of them, on the plan's graph.

    Loads are those that the first model stage counts. What they leave open (``LoadFit.scatter``) is drawn
    once, each computation by itself: ``error`` is the relative standard error of a forecast (NaN: unknown).
    """

    def __init__(self, plans: PlanSet, objective: int, profile: Profile) -> None:
        self._dag, self._profile = dag_of(plans.schedule), profile
        self.microbatches = plans.schedule.microbatches
        columns = {instruction: column for column, instruction in enumerate(plans.computations())}

        def usual_s(node: Instruction) -> float:
            key = node.stage, node.kind
            if node not in columns:
                return plans.fixed_s[key]
            return float(plans.blend(columns[node], plans.options[key].time_s)[objective])

        self._usual_s = np.array([usual_s(node) for node in self._dag.nodes])
        self._paths = LongestPaths(self._dag.graph, self._dag.delays_s(plans.fixed_s))
        self._keys = sorted({(node.stage, node.kind) for node in columns}, key=str)
        # each node's row among the terms; what has no load is of microbatch 0 and has a row of ones
        row = {key: place for place, key in enumerate(self._keys)}
        ones, nodes = len(self._keys), self._dag.nodes
        self._row = np.array([row[node.stage, node.kind] if node in columns else ones for node in nodes])
        self._microbatch = np.array([node.microbatch if node in columns else 0 for node in nodes])
        self._terms = profile.load_terms(self._keys, counted_at=0)
        self.error = self._error(plans.scatter_pct)

    def of(self, loads: Sequence[Load]) -> float:
        """Return how long an iteration will take, in seconds; cost: about 0.1 us for each node of the plan.

        Shape: ``loads`` [microbatches].
        """
        counted = np.array([(1.0, load.tokens, load.squares) for load in loads])
        factor = np.vstack((self._terms @ counted.T, np.ones(len(loads))))[self._row, self._microbatch]
        return self._lasts_s(self._usual_s * factor)

    def _lasts_s(self, each_s: Floats) -> float:
        return float(self._paths.over(self._paths.ends(each_s)))

    def _error(self, scatter_pct: float | None) -> float:
        """Return by how much iterations vary, where the profile does not state it of all computations."""
        varies, fits = self._profile.variation() or {}, self._profile.loads
        scatters = [fits[key].scatter if key in fits else varies.get(key, math.nan) for key in self._keys]
        share = np.array([*scatters, 0.0])[self._row]
        if np.isnan(share).any():
            return math.nan if scatter_pct is None else scatter_pct / 100.0
        normal = np.random.default_rng(0).standard_normal((len(share), _DRAWS))
        drawn_s = self._usual_s[:, None] * np.maximum(0.2, 1.0 + share[:, None] * normal)
        lasts_s = np.array([self._lasts_s(one_s) for one_s in drawn_s.T])
        return max(_LEAST_ERROR, float(lasts_s.std() / lasts_s.mean()))
