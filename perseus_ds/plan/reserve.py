"""The reserve: slack that a plan leaves unused because durations vary, given or as much as they ask for.

A plan that fills all slack has many paths that are just critical. Of many that vary one is always longer than
planned, although none is on average.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perseus_ds.plan.problem import PlanProblem
from perseus_ds.plan.record import Options, PlanSet
from perseus_ds.profile import Profile
from perseus_ds.profile.curves import sampled_ratios, time_factor
from perseus_ds.profile.loads import log_normal
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Dag
from perseus_ds.solver.problem import Floats, Plans, blend

# What it does to iterations that computations vary, as they varied in the profile.

_MOST_DRAWS, _LEAST_DRAWS = 200, 20
_MOST_NUMBERS = 4_000_000  # nodes times draws: 32 MB in each array
_LEAST_FACTOR = 0.5
_SCATTER_DRAWS, _MOST_SCATTER_NUMBERS = 100, 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Iterations as they might turn out: what every node's duration is multiplied by, the same for all plans.

    ``problem`` is without reserve: what computations really last on average. Where loads vary ``slow_first``
    has split computations do their slower part first.

    Shape: ``factor`` [nodes, draws].
    """

    problem: PlanProblem
    factor: Floats
    slow_first: bool

    @classmethod
    def of(cls, problem: PlanProblem, *, slow_first: bool) -> Draws | None:
        """Draw iterations, fewer of large graphs; None where a profile does not state how durations vary."""
        if problem.variation is None:
            return None
        draws = int(np.clip(_MOST_NUMBERS // len(problem.dag.nodes), _LEAST_DRAWS, _MOST_DRAWS))
        factor = drawn_factors(problem.dag, problem.variation, problem.load_variation, draws)
        return cls(problem.with_margins({}).with_reserve(0.0), factor, slow_first)

    def slowdown_pct(self, plans: Plans) -> float:
        """Return the mean slowdown of the fastest plan's iterations against the fastest clocks."""
        problem, activities = self.problem, self.problem.activities
        fastest_s = np.array([table.duration_s.min() for table in activities.tables])[activities.table_of]
        planned_s, least_s = (
            problem.dag.longest(lasts_s, problem.fixed_s).mean()
            for lasts_s in (self._lasts_s(plans.at(np.zeros(1, np.int32))), fastest_s[:, None] * self.factor)
        )
        return float(100.0 * (planned_s / least_s - 1.0))

    def _lasts_s(self, one: Plans) -> Floats:
        """Return the duration of every node in each draw.

        Where loads vary a computation changes its clock as long after its start as planned. So what is longer
        than planned is longer at the second clock.

        Shape: ``one`` plan; [nodes, draws].
        """
        activities, share = self.problem.activities, one.share

        def whole_s(share: Floats) -> Floats:
            return np.asarray(blend(activities, one.choice, one.other, share)[0][0])

        if not self.problem.load_variation:
            return whole_s(share)[:, None] * self.factor
        first_s = whole_s(np.ones_like(share))
        rest_s = np.where(share[0] < 1.0, whole_s(np.zeros_like(share)), first_s)
        begun = share[0]
        if self.slow_first:
            first_s, rest_s, begun = rest_s, first_s, 1.0 - begun
        first = np.minimum(self.factor, begun[:, None])
        return np.asarray(first_s[:, None] * first + rest_s[:, None] * (self.factor - first))

    def scatter_pct(self) -> float:
        """Relative standard deviation of an iteration at the highest clocks."""
        problem = self.problem
        assert problem.variation is not None
        variation = {key: math.hypot(own, problem.load_variation) for key, own in problem.variation.items()}
        return scatter_pct(problem.dag, problem.options, problem.fixed_s, variation)


def drawn_factors(
    dag: Dag, variation: Mapping[Computation, float], load_variation: float, draws: int
) -> Floats:
    """Draw every computation by itself, and every microbatch's load, one on all stages.

    What has no clock lasts its mean. The same draws with every call.

    Shape: [nodes, draws].
    """
    share = np.array([variation.get((node.stage, node.kind), 0.0) for node in dag.nodes])
    random = np.random.default_rng(0)
    factor = np.maximum(1.0 + share[:, None] * random.standard_normal((len(share), draws)), _LEAST_FACTOR)
    if load_variation:
        batch = np.array([node.microbatch for node in dag.nodes])
        computed = np.array([[node.kind.is_computation] for node in dag.nodes])
        loads = log_normal(load_variation, random.standard_normal((int(batch.max()) + 1, draws)))
        factor *= np.where(computed, loads[batch], 1.0)
    return factor


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
    batch = np.array([node.microbatch for node in dag.nodes])
    draws = max(_LEAST_DRAWS, min(_SCATTER_DRAWS, _MOST_SCATTER_NUMBERS // len(nodes)))
    normal = np.random.default_rng(0).standard_normal((int(batch.max()) + 1, draws))[batch]
    drawn_s = mean_s[:, None] * log_normal(share[:, None], normal)
    end_s = dag.longest(drawn_s, fixed_s)
    return float(100.0 * end_s.std() / end_s.mean())


Reserve = float | Literal["automatic"]
"""Percent by which stretched computations are planned longer than they last on average."""

ALLOWED_PCT = 0.1
"""Percent by which iterations of the fastest plan may last longer, on average, for durations vary."""
CANDIDATES_PCT = 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0
_MORE_PCT = 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 70.0, 100.0, 200.0, 400.0, 1000.0, 3000.0, 10_000.0
BY_LOAD_PCT = CANDIDATES_PCT + _MORE_PCT
"""The same where microbatches differ in their loads: then slack that is there on average often is not."""
UNKNOWN_PCT = 1.0
"""Reserve where a profile does not state how durations vary: enough for one percent."""
MOST_PCT = 20.0
"""Most that ``objective.reserve_pct`` may be."""


def least_reserve_pct(
    problem: PlanProblem, draws: Draws | None, fastest: Callable[[PlanProblem], Plans]
) -> float:
    """Return the least reserve with which durations that vary cost no time, the largest if none suffices.

    Cost: five plans at most, which ``fastest`` makes.
    """
    if draws is None:
        return UNKNOWN_PCT

    def is_enough(candidate_pct: float) -> bool:
        return draws.slowdown_pct(fastest(problem.with_reserve(candidate_pct))) <= ALLOWED_PCT

    candidates = BY_LOAD_PCT if problem.load_variation else CANDIDATES_PCT
    if is_enough(candidates[0]):
        return candidates[0]
    return candidates[bisect_left(candidates, True, lo=1, hi=len(candidates) - 1, key=is_enough)]


def reserve_in_words(reserve: Reserve) -> str:
    """Return the words of fingerprints: without the unit, and "auto" as files of all releases have it."""
    return "auto" if reserve == "automatic" else f"{reserve:g}"


def too_little_reserve(plans: PlanSet) -> str | None:
    """Describe by how much iterations last longer than planned; None where an automatic reserve allows it."""
    slower_pct = plans.variation_slowdown_pct
    if slower_pct is None or slower_pct <= ALLOWED_PCT:
        return None
    most = ", the most that automatic keeps," if plans.reserve_pct == CANDIDATES_PCT[-1] else ""
    more_pct = min(max(1.0, 2.0 * plans.reserve_pct), MOST_PCT)
    advice = f"; reserve_pct {more_pct:g} keeps more, for less saving" if more_pct > plans.reserve_pct else ""
    return (
        f"a reserve of {plans.reserve_pct:g} %{most} is too little for durations that vary as in the profile:"
        f" iterations of the fastest plan will last {slower_pct:.2f} % longer on average{advice}"
    )


# By how much longer than profiled durations are planned, for the profile's own errors.
#
# An error of a profile is alike in all microbatches, and a plan prefers clocks that are too good by chance.
# So what a clock costs in time against the highest one is taken as somewhat more than it seems.

SURENESS = 0.5
"""Standard deviations of what a clock costs in time that are planned beyond its mean.

Found on profiles with errors: 0.5 % of an entry then cost 0.05 % of an
iteration on average, 2 % cost 0.12 %. More would cost energy.
"""
_DRAWS = 400


def margins_s(known: Profile) -> Mapping[Computation, Floats]:
    """Return what the durations of all computations are planned longer; nothing of those without errors.

    Shape: [clocks] each, highest clock first, for which it is 0.
    """
    random = np.random.default_rng(0)
    found = {}
    for key in known.points:
        factor = time_factor(known, key)
        if factor.any():
            time_s = np.array([point.time_s for point in known.of(*key)])
            normal = random.standard_normal((len(time_s), _DRAWS))
            drawn_s = time_s[:, None] * sampled_ratios(time_s, factor, normal)
            more_s = (drawn_s - drawn_s[0]) - (time_s - time_s[0])[:, None]  # than a clock seems to cost
            found[key] = np.maximum(more_s.mean(axis=1) + SURENESS * more_s.std(axis=1), 0.0)
    return found


# Whether a profile claims what cannot be: plans that are faster than all clocks at maximum.

SURE = 3.0
"""Standard errors that make a difference more than chance."""
UNSAID_PCT = 0.5
"""Error that we grant a profile that states nothing of its own, in percent."""


def time_error_pct(profile: Profile) -> float:
    """Return by how much a mean duration of this profile may be off: the worst of all points.

    Units: percent of the duration, three standard errors; 0.5 where the profile gives none.
    """
    errors = [point.time_se_s / point.time_s for points in profile.points.values() for point in points]
    return max(100.0 * SURE * max(errors, default=0.0), UNSAID_PCT)


def doubt(plans: PlanSet) -> str | None:
    """Report that a frontier is faster than it can be, if it is by more than the measurement's error."""
    faster_pct = 100.0 * (1.0 - float(plans.iteration_time_s[0]) / plans.baseline.iteration_time_s)
    if faster_pct <= plans.time_error_pct:
        return None
    return (
        f"the profile is doubtful: its fastest plan claims to be {faster_pct:.2f} % faster than all clocks at"
        f" maximum, and durations are known to {plans.time_error_pct:.2g} %. Measure longer"
        " (perseus.profile.min_window_s)"
    )
