"""How much slack plans that follow loads leave unused, for what loads leave open."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.following.load_problem import LoadProblem
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.solving.reserve import ALLOWED_PCT, CANDIDATES_PCT
from perseus_ds.profile import Computation, Profile
from perseus_ds.profile.loads.sizes import log_normal

_ITERATIONS, _DRAWS = 4, 40
Floats = NDArray[np.float64]


def load_problem(
    plans: PlanSet, profile: Profile, objective: int, *, change: ClockChange | None = None
) -> LoadProblem:
    """Return the problem with the least reserve that loses no time to what loads leave open.

    Iterations are drawn whose microbatches vary as in the profile. Each is planned for its shortest time and
    run again and again, every computation off by its own scatter.

    Cost: some 16 solutions of one iteration.
    """
    random = np.random.default_rng(0)
    bare = LoadProblem(plans, profile, objective, change=change)
    factors = [drawn_factor(bare, random) for _ in range(_ITERATIONS)]
    scatter = scatter_of(bare, profile)
    normal = random.standard_normal((len(scatter), _DRAWS))
    off = np.maximum(0.5, 1.0 + scatter[:, None] * normal)

    def keeping(reserve_pct: float) -> LoadProblem:
        return LoadProblem(plans, profile, objective, change=change, reserve_pct=reserve_pct)

    def is_enough(reserve_pct: float) -> bool:
        problem = keeping(reserve_pct)
        return bool(np.mean([_slowdown_pct(problem, factor, off) for factor in factors]) <= ALLOWED_PCT)

    found = bisect_left(CANDIDATES_PCT, True, hi=len(CANDIDATES_PCT) - 1, key=is_enough)
    return keeping(CANDIDATES_PCT[found])


def drawn_factor(problem: LoadProblem, random: np.random.Generator) -> Floats:
    """Draw what loads make of an iteration's durations.

    Shape: [nodes].
    """
    microbatches = problem.plans.schedule.microbatches
    vary = problem.profile.size_variation
    sizes = log_normal(vary, random.standard_normal(microbatches))
    return problem.by_size(sizes)


def scatter_of(problem: LoadProblem, profile: Profile) -> Floats:
    """Relative standard deviation of every computation at its load.

    Shape: [nodes]; 0 for nodes that are not computations.
    """
    known: Mapping[Computation, float] = {
        **(profile.variation() or {}),
        **{key: fit.scatter for key, fit in profile.loads.items()},
    }
    nodes = problem.problem.dag.nodes
    return np.array([known.get((n.stage, n.kind), 0.0) if n.kind.is_computation else 0.0 for n in nodes])


def _slowdown_pct(problem: LoadProblem, factor: Floats, off: Floats) -> float:
    """How much longer iterations last on average than at the highest clocks."""
    solved = problem.solve(factor)
    planned_s = problem.each_s(solved, solved.frontier.t_min_s)
    after_s, before_s = (
        _mean_s(problem, each_s, off) for each_s in (planned_s, problem.at_highest_s(factor))
    )
    return 100.0 * (after_s / before_s - 1.0)


def _mean_s(problem: LoadProblem, each_s: Floats, off: Floats) -> float:
    drawn_s = each_s[:, None] * off
    dag, fixed_s = problem.problem.dag, problem.plans.fixed_s
    return float((dag.starts_of_many(drawn_s, fixed_s) + drawn_s).max(axis=0).mean())
