"""Plans of every kind, and each run by the emulator beside default clocks under the same noise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from profiles import varying

sys.path.append(str(Path(__file__).resolve().parents[1] / "paper"))
import baselines

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.plan import PlanSet, build, select
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.playing.costs import costs_of
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.profile import Profile
from perseus_ds.schedule import Schedule
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator

HIGH_W, LOW_W, LOW_MHZ = 83.64, 56.4, 300  # A100: the Perseus artifact; one public log
WHOLE, ENVPIPE, NO_LEAD = "one clock per computation", "EnvPipe", "the same, asked for when it is due"
KINDS = {
    WHOLE: Switching(split="never"),
    "split": Switching(),
    "split, low waits": Switching(waits="auto"),
    "at most 10 per second": Switching(budget=ChangeBudget(10.0)),
    "at most 3 per second": Switching(budget=ChangeBudget(3.0)),
    "one clock per stage": Switching(budget=ChangeBudget(0.0)),
}
ITERATIONS = 60
NOISES = 0.02, 0.005  # of every computation: a bad machine, a quiet one
Played = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of plan, as planned and as run.

    ``played``: saving and slowdown in percent without noise, with the first of NOISES, and with each of them
    under a reserve. The reserve is that of a job whose profile varied as much. ``reserves_pct``: these
    reserves.
    """

    microbatches: int
    latency_ms: float
    kind: str
    changes_per_s: float
    planned_saving_pct: float
    played: tuple[Played, ...]
    plan_cpu_s: float
    reserves_pct: tuple[float, ...] = ()


def rows_of(profile: Profile, schedule: Schedule, change: ClockChange) -> Iterator[Row]:
    """Plan and run every kind."""
    high_w = max(profile.blocking_w.values())
    for kind, switching in KINDS.items():
        began_s = time.process_time()
        own = replace(switching, change=change)
        plans = build(profile, schedule, blocking_power_w=high_w, switching=own)
        took_s = time.process_time() - began_s
        played = [_played(plans, profile, noise) for noise in (0.0, NOISES[0])]
        reserves_pct = []
        for noise in NOISES:
            kept = build(
                varying(profile, noise), schedule, blocking_power_w=high_w, switching=own, reserve_pct="auto"
            )
            played.append(_played(kept, profile, noise))
            reserves_pct.append(kept.reserve_pct)
        row = _row(kind, plans, change, tuple(played), took_s)
        yield replace(row, reserves_pct=tuple(reserves_pct))
        if kind == WHOLE:
            late = _as_published(plans, profile)
            yield _row(NO_LEAD, plans, change, late, took_s)
            envelope = _envpipe(plans, profile, schedule)
            yield _row(ENVPIPE, envelope, change, _as_published(envelope, profile), 0.0)


def _as_published(plans: PlanSet, profile: Profile) -> tuple[Played, ...]:
    """Every change at the boundary, without noise and with."""
    return tuple(_played(plans, profile, noise, reckoned=ClockChange()) for noise in (0.0, NOISES[0]))


def _row(kind: str, plans: PlanSet, change: ClockChange, played: tuple[Played, ...], took_s: float) -> Row:
    plan = select(plans, Objective())
    return Row(
        plans.schedule.microbatches,
        1e3 * change.longest_s,
        kind,
        costs_of(plan).changes_per_s,
        plan.saving_pct,
        played,
        took_s,
    )


def _played(plans: PlanSet, profile: Profile, noise: float, reckoned: ClockChange | None = None) -> Played:
    """Saving and slowdown in percent; the first iteration, in which clocks change, is left out."""
    waiting_w = plans.baseline.blocking_power_w if plans.wait_clock is None else profile.blocking_w
    cluster = ClusterShape(change=plans.change, reckoned=reckoned, waiting_w=waiting_w)
    emulator = Emulator(plans, profile, cluster, conditions=Conditions(noise=noise, seed=1))
    plan = select(plans, Objective()).index
    ours, default = (emulator.play(ITERATIONS, always=one) for one in (plan, DEFAULT_CLOCKS))
    spent_j, default_j = (found.energy_j[1:].sum() for found in (ours, default))
    took_s, default_s = (found.job_s[1:].sum() for found in (ours, default))
    return 100.0 * float(1.0 - spent_j / default_j), 100.0 * float(took_s / default_s - 1.0)


def _envpipe(plans: PlanSet, profile: Profile, schedule: Schedule) -> PlanSet:
    """EnvPipe's better variant as the only plan of a set."""
    high_w = plans.baseline.blocking_power_w
    instance = baselines.instance_of(profile, schedule, blocking_power_w=high_w)
    variants = [baselines.envpipe_greedy(instance), baselines.envpipe_balanced(instance)]
    priced = [baselines.price(instance, choice) for choice in variants]
    best = int(np.argmin([float(one.beside_j(float(one.time_s[0]))) for one in priced]))
    column = {node: place for place, node in enumerate(instance.nodes)}
    choice = [int(variants[best][0, column[instruction]]) for instruction in plans.computations()]
    return replace(
        plans,
        choice=np.array([choice], plans.choice.dtype),
        iteration_time_s=priced[best].time_s[:1],
        effective_energy_j=priced[best].effective_j[:1],
        lower_bound_j=plans.lower_bound_j[:1],
        effective_bound_j=plans.effective_bound_j[:1],
    )
