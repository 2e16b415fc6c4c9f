"""A small pipeline whose durations follow loads, its plans, and a planner that answers on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.following import LoadProblem
from perseus_ds.profile import LoadFit, Profile
from perseus_ds.schedule import Load, textbook
from perseus_ds.simulation import textbook_profile

WEIGHTS, BLOCKING_W = (1.0, 1.2, 0.9), 70.0
STAGES, MICROBATCHES, SCATTER = 3, 6, 0.01
FREE = ClockChange()


@cache
def profile(scatter: float = SCATTER) -> Profile:
    """Durations that follow tokens; an iteration's microbatches vary by 30 %."""
    plain = textbook_profile(WEIGHTS, variation=0.3)
    fit = LoadFit(Load(1000.0), base=0.2, tokens=0.8, squares=0.0, scatter=scatter, r2=0.99, samples=100)
    return replace(plain, loads=dict.fromkeys(plain.points, fit), size_variation=0.3)


@cache
def planned() -> PlanSet:
    """Its frontier, without a reserve."""
    schedule = textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES)
    return build(profile(), schedule, blocking_power_w=BLOCKING_W, reserve_pct=0.0)


def problem(reserve_pct: float = 0.0) -> LoadProblem:
    """What is solved for one iteration, beside the fastest plan."""
    return LoadProblem(planned(), profile(), 0, change=FREE, reserve_pct=reserve_pct)


def drawn(seed: int) -> list[Load]:
    """Loads of one iteration."""
    return [Load(1000.0 * size) for size in np.random.default_rng(seed).lognormal(0.0, 0.5, MICROBATCHES)]


def usual_busy_j(one: LoadProblem, factor: NDArray[np.float64]) -> float:
    """What computations use beyond waiting at the fastest plan, made for equal loads."""
    plans, found = planned(), 0.0
    computed: Sequence[tuple[int, int]] = list(enumerate(one.problem.columns.tolist()))
    for column, row in computed:
        options = plans.options[(node := one.problem.dag.nodes[row]).stage, node.kind]
        beyond_j = options.energy_j - plans.blocking_power_w * options.time_s
        found += float(factor[row] * plans.blended(column, beyond_j)[0])
    return found
