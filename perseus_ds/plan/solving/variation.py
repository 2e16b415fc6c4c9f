"""What it does to iterations that computations vary, as they varied in the profile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.options import Options
from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.profile import Computation
from perseus_ds.profile.loads.sizes import log_normal
from perseus_ds.schedule import Dag
from perseus_ds.solver import Plans, blended

_MOST_DRAWS, _LEAST_DRAWS = 200, 20
_MOST_NUMBERS = 4_000_000  # nodes times draws: 32 MB in each array
_LEAST_FACTOR = 0.5
_SCATTER_DRAWS, _MOST_SCATTER_NUMBERS = 100, 1_000_000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Iterations as they might turn out: what every node's duration is multiplied by, the same for all plans.

    ``problem`` is without reserve: what computations really last on average. Where loads vary ``slow_first``
    has split computations do their slower part first.

    Shape: ``factor`` [nodes, draws]; ``fastest_s`` [nodes].
    """

    problem: PlanProblem
    factor: Floats
    fastest_s: Floats
    slow_first: bool = True

    @classmethod
    def of(
        cls, problem: PlanProblem, *, seed: int = 0, most: int = _MOST_DRAWS, slow_first: bool = True
    ) -> Draws | None:
        """Draw every computation by itself, and every microbatch's load; what has no clock lasts its mean.

        At ``most`` so many iterations, fewer of large graphs. None where the profile does not state how
        durations vary.
        """
        if problem.variation is None:
            return None
        nodes, unreserved = problem.dag.nodes, problem.keeping({}).reserving(0.0)
        share = np.array([problem.variation.get((node.stage, node.kind), 0.0) for node in nodes])
        draws = int(np.clip(_MOST_NUMBERS // len(nodes), _LEAST_DRAWS, most))
        random = np.random.default_rng(seed)
        factor = np.maximum(1.0 + share[:, None] * random.standard_normal((len(nodes), draws)), _LEAST_FACTOR)
        if problem.load_variation:
            batch = np.array([max(0, node.microbatch) for node in nodes])
            computed = np.array([[node.kind.is_computation] for node in nodes])
            loads = log_normal(problem.load_variation, random.standard_normal((int(batch.max()) + 1, draws)))
            factor *= np.where(computed, loads[batch], 1.0)
        fastest_s = np.array([table.duration_s.min() for table in unreserved.activities.tables])
        return cls(
            unreserved,
            factor,
            fastest_s[unreserved.activities.table_of],
            slow_first,
        )

    def slowdown_pct(self, plans: Plans) -> float:
        """How much longer iterations last on average at the fastest plan than at the fastest clocks."""
        lasts_s = self._lasts_s(plans.at(np.zeros(1, np.int32)))
        return 100.0 * (self._mean_s(lasts_s) / self._mean_s(self.fastest_s[:, None] * self.factor) - 1.0)

    def _lasts_s(self, one: Plans) -> Floats:
        """What every node lasts in each draw.

        Shape: ``one`` plan; [nodes, draws].
        """
        activities, share = self.problem.activities, one.share
        if not self.problem.load_variation:
            duration_s = blended(activities, one.choice, one.other, share)[0][0]
            return np.asarray(duration_s[:, None] * self.factor)
        whole = np.ones_like(share)
        begun_s = blended(activities, one.choice, one.other, whole)[0][0]
        ended_s = blended(activities, one.choice, one.other, 0.0 * whole)[0][0]
        split = share[0] < 1.0
        if self.slow_first:
            return _split_s(np.where(split, ended_s, begun_s), begun_s, 1.0 - share[0], self.factor)
        return _split_s(begun_s, np.where(split, ended_s, begun_s), share[0], self.factor)

    def scatter_pct(self) -> float:
        """Relative standard deviation of an iteration at the highest clocks."""
        problem = self.problem
        assert problem.variation is not None
        variation = {key: math.hypot(own, problem.load_variation) for key, own in problem.variation.items()}
        return scatter_pct(problem.dag, problem.options, problem.fixed_s, variation)

    def _mean_s(self, drawn_s: Floats) -> float:
        """Mean time of an iteration.

        Shape: ``drawn_s`` [nodes, draws].
        """
        dag = self.problem.dag
        start_s = dag.starts_of_many(drawn_s, self.problem.fixed_s)
        return float((start_s + drawn_s).max(axis=0).mean())


def _split_s(begun_s: Floats, rest_s: Floats, share: Floats, factor: Floats) -> Floats:
    """What computations last that change their clock as long after their start as planned.

    They would take ``begun_s`` at their first clock alone and ``rest_s`` at their second, and are to do
    ``share`` of their mean work at the first. So what is longer than planned is longer at the second.

    Shape: ``begun_s``, ``rest_s``, ``share`` [nodes]; ``factor`` and the result [nodes, draws].
    """
    first = np.minimum(factor, share[:, None])
    lasts_s: Floats = begun_s[:, None] * first + rest_s[:, None] * (factor - first)
    return lasts_s


def scatter_pct(
    dag: Dag,
    options: Mapping[Computation, Options],
    fixed_s: Mapping[Computation, float],
    variation: Mapping[Computation, float],
) -> float:
    """Relative standard deviation of an iteration at the highest clocks whose computations vary so.

    All computations of a microbatch vary alike, as they do where its load makes them: what varies by itself
    scatters less. Durations are drawn log-normal.

    Cost: 100 passes over the graph, as vectors.
    """
    nodes = [(node.stage, node.kind) for node in dag.nodes]
    share = np.array([variation.get(key, 0.0) if key in options else 0.0 for key in nodes])
    mean_s = np.array([options[key].time_s[0] if key in options else fixed_s[key] for key in nodes])
    batch = np.array([max(0, node.microbatch) for node in dag.nodes])
    draws = max(_LEAST_DRAWS, min(_SCATTER_DRAWS, _MOST_SCATTER_NUMBERS // len(nodes)))
    normal = np.random.default_rng(0).standard_normal((int(batch.max()) + 1, draws))[batch]
    drawn_s = mean_s[:, None] * log_normal(share[:, None], normal)
    end_s = (dag.starts_of_many(drawn_s, fixed_s) + drawn_s).max(axis=0)
    return float(100.0 * end_s.std() / end_s.mean())
