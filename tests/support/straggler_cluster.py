"""A virtual job of four stages and eight microbatches, and what its waiting replicas use against the best."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from virtual_cluster import Cluster, Pipeline, Played, Trouble

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, build
from perseus_ds.schedule import textbook
from perseus_ds.simulation import textbook_profile
from perseus_ds.straggler.frontier_index import FrontierIndex

BLOCKING_W = 70.0
STAGES = (1.0, 1.1, 0.95, 1.2)
NOISE = 0.02
Troubles = Callable[[int, int], Trouble]


@cache
def planned(weights: tuple[float, ...] = STAGES, variation: float | None = NOISE) -> PlanSet:
    """A real frontier, planned with the reserve that jobs keep."""
    schedule = textbook("1f1b", stages=len(weights), microbatches=8)
    profile = textbook_profile(weights, variation=variation)
    return build(profile, schedule, blocking_power_w=BLOCKING_W, reserve_pct=1.0)


@cache
def index() -> FrontierIndex:
    """The same, ready for look-up."""
    return FrontierIndex.of(planned(), Objective())


def play(
    iterations: int,
    trouble: Troubles,
    *,
    replicas: int = 4,
    frontiers: Sequence[PlanSet] = (),
    noise: float = NOISE,
    seed: int = 0,
) -> Played:
    """Play a job of ``replicas`` (with these frontiers, if they differ), each with its own noise."""
    plans = frontiers or [planned()] * replicas
    return Cluster(
        [Pipeline(one, noise=noise, seed=1000 * seed + place) for place, one in enumerate(plans)]
    ).play(iterations, trouble)


def slow_between(first: int, last: int, *, replica: int = 1, slowdown: float = 1.2) -> Troubles:
    """One replica is slow in iterations ``first`` to ``last - 1``."""

    def trouble(one: int, iteration: int) -> Trouble:
        return Trouble(slowdown if one == replica and first <= iteration < last else 1.0)

    return trouble


def excess_pct(played: Played, when: slice) -> float:
    """How much longer the job takes than its slowest replica would at full speed."""
    return float(100.0 * (played.job_s[when].mean() / played.free_s[when].max(axis=1).mean() - 1.0))


def energy_above_best_pct(played: Played, when: slice, replica: int, plans: PlanSet | None = None) -> float:
    """Energy of a waiting replica above that of the best frontier point for the true T'."""
    plans = plans or planned()
    sync_time_s = float(played.free_s[when].max(axis=1).mean())
    energy_j = plans.effective_energy_j + plans.blocking_total_w * sync_time_s
    best = Pipeline(plans).frontier_index.within(sync_time_s)
    return float(100.0 * (energy_j[played.plan[when, replica]].mean() / energy_j[best] - 1.0))


def slowed(played: Played) -> np.ndarray:
    """Iterations in which some replica plays another plan than at the start."""
    return np.flatnonzero((played.plan != played.plan[0]).any(axis=1))
