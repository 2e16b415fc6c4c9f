"""How long an iteration will take at the objective's plan, by the loads of its microbatches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.profile import Profile
from perseus_ds.schedule import Instruction, Load, dag_of
from perseus_ds.schedule.dag import LongestPaths

_DRAWS = 40
_LEAST_ERROR = 0.004  # of an iteration: no prediction is better
Floats = NDArray[np.float64]


def _usual_s(plans: PlanSet, objective: int, node: Instruction, columns: Mapping[Instruction, int]) -> float:
    key = node.stage, node.kind
    if node not in columns:
        return plans.fixed_s[key]
    return float(plans.blended(columns[node], plans.options[key].time_s)[objective])


class Forecast:
    """Durations of the objective's plan, times what microbatches' loads make of them, on the plan's graph.

    Loads are those that the first model stage counts. What they leave open (``LoadFit.scatter``) is drawn
    once, each computation by itself: ``error`` is the relative standard error of a forecast (NaN: unknown).
    """

    def __init__(self, plans: PlanSet, objective: int, profile: Profile) -> None:
        self._dag, self._profile = dag_of(plans.schedule), profile
        self.microbatches = plans.schedule.microbatches
        columns = {instruction: column for column, instruction in enumerate(plans.computations())}
        self._usual_s = np.array([_usual_s(plans, objective, node, columns) for node in self._dag.nodes])
        self._paths = LongestPaths(self._dag.graph, self._dag.delays_s(plans.fixed_s))
        self._keys = sorted({(node.stage, node.kind) for node in columns}, key=str)
        self._row, self._microbatch = self._places(columns)
        self._terms = profile.load_terms(self._keys, counted_at=0)
        self.error = self._error(plans.scatter_pct)

    def _places(self, columns: Mapping[Instruction, int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row of every node's computation among the terms, and its microbatch.

        What has no load is of microbatch 0, and its row is one of ones behind those of all computations.
        """
        row = {key: place for place, key in enumerate(self._keys)}
        ones, nodes = len(self._keys), self._dag.nodes
        rows = [row[node.stage, node.kind] if node in columns else ones for node in nodes]
        return np.array(rows), np.array([node.microbatch if node in columns else 0 for node in nodes])

    def of(self, loads: Sequence[Load]) -> float:
        """Return how long an iteration will take, in seconds.

        Shape: ``loads`` [microbatches].
        Cost: linear in the plan's graph, interpreted: about 0.1 us for each of its nodes.
        """
        counted = np.array([(1.0, load.tokens, load.squares) for load in loads])
        factor = np.vstack((self._terms @ counted.T, np.ones(len(loads))))[self._row, self._microbatch]
        return self._lasts_s(self._usual_s * factor)

    def _lasts_s(self, each_s: Floats) -> float:
        return float(self._paths.over(self._paths.ends(each_s)))

    def _error(self, scatter_pct: float | None) -> float:
        """By how much iterations vary, where the profile does not state it of all computations."""
        varies, fits = self._profile.variation() or {}, self._profile.loads
        scatters = [fits[key].scatter if key in fits else varies.get(key, math.nan) for key in self._keys]
        share = np.array([*scatters, 0.0])[self._row]
        if np.isnan(share).any():
            return math.nan if scatter_pct is None else scatter_pct / 100.0
        normal = np.random.default_rng(0).standard_normal((len(share), _DRAWS))
        drawn_s = self._usual_s[:, None] * np.maximum(0.2, 1.0 + share[:, None] * normal)
        lasts_s = np.array([self._lasts_s(one_s) for one_s in drawn_s.T])
        return max(_LEAST_ERROR, float(lasts_s.std() / lasts_s.mean()))
