"""One pipeline planned by everybody: savings at full speed and beside stragglers, and the bound below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import baselines
import numpy as np
from baselines import Priced
from perseus_published import published_perseus

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Profile
from perseus_ds.schedule import Schedule, textbook

SLOWDOWNS = (1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
AUTHORS = "Perseus as its authors count"
BOUND = "certified bound"
OURS = "ours"
LOW_W, LOW_MHZ = 56.4, 300  # a waiting A100 at a low clock, from one public log
_SLOW = ClockChange(call_s=0.005, settle_up_s=0.005, settle_down_s=0.005)
ADDED = {
    "ours, split": Switching(),
    "ours, split, low waits": Switching(waits="automatic"),
    "ours, 10 ms per change": Switching(_SLOW, split="never"),
    "ours, split, low waits, 10 ms": Switching(_SLOW, waits="automatic"),
}
"""What our model has beside the paper's: clocks that change within a computation, low clocks in waits,
changes that take their time."""


@dataclass(frozen=True, slots=True)
class Row:
    """Savings of one method in percent, beside a straggler of each slowdown; 1.0 is no straggler.

    ``longer_pct`` is how much longer its fastest plan takes than all clocks at maximum. None stands where no
    plan of the method is as fast as asked.
    """

    microbatches: int
    method: str
    longer_pct: float
    saving_pct: dict[str, float | None] = field(default_factory=dict)


def rows_of(profile: Profile, microbatches: int, *, blocking_power_w: float) -> Iterator[Row]:
    """Plan with every method; the schedule is 1F1B over all stages of the profile."""
    schedule = textbook("1f1b", stages=profile.stages, microbatches=microbatches)
    instance = baselines.instance_of(profile, schedule, blocking_power_w=blocking_power_w)
    before = baselines.price(instance, baselines.all_maximum(instance))
    published = published_perseus(instance)
    found = {
        "EnvPipe, envelope only": baselines.envelope(instance),
        "EnvPipe, greedy": baselines.envpipe_greedy(instance),
        "EnvPipe, balanced": baselines.envpipe_balanced(instance),
        "one clock for all": baselines.uniform_clock(instance),
        "ZeusGlobal": baselines.zeus_global(instance),
        "ZeusPerStage": baselines.zeus_per_stage(instance),
        "Perseus as published": published.choice,
    }
    for name, choice in found.items():
        yield _row(microbatches, name, before, baselines.price(instance, choice))
    yield _as_its_authors_count(microbatches, before, published.planned)
    plans = _planned(profile, schedule, blocking_power_w, Switching(split="never"))
    yield _row(microbatches, OURS, before, _priced(plans))
    yield _bound(microbatches, before, plans)
    waiting_w = {max(profile.clocks_mhz): blocking_power_w, LOW_MHZ: LOW_W}
    measured = replace(profile, blocking_w=waiting_w)
    for name, switching in ADDED.items():
        added = _planned(measured, schedule, blocking_power_w, switching)
        yield _row(microbatches, name, before, _priced(added))


def _planned(profile: Profile, schedule: Schedule, blocking_power_w: float, switching: Switching) -> PlanSet:
    return build(profile, schedule, blocking_power_w=blocking_power_w, switching=switching, verify=True)


def _priced(plans: PlanSet) -> Priced:
    return Priced(plans.iteration_time_s, plans.effective_energy_j, plans.blocking_total_w)


def _row(microbatches: int, method: str, before: Priced, after: Priced) -> Row:
    """Compare over the straggler's time, the rest of it spent waiting.

    Without a straggler a method's fastest plan counts over its own time, as the papers' tables have it.
    """
    least_s, fastest = float(before.time_s[0]), int(np.lexsort((after.energy_j, after.time_s))[0])
    row = Row(microbatches, method, 100.0 * (float(after.time_s[fastest]) / least_s - 1.0))
    for slowdown in SLOWDOWNS:
        until_s = slowdown * least_s
        after_j = after.energy_j[fastest] if slowdown == 1.0 else None
        if slowdown > 1.0 and after.time_s.min() <= until_s:
            after_j = after.beside_j(until_s)
        row.saving_pct[f"{slowdown:g}"] = (
            None if after_j is None else baselines.saving_pct(before.beside_j(until_s), float(after_j))
        )
    return row


def _as_its_authors_count(microbatches: int, before: Priced, planned: Priced) -> Row:
    """Energy on the fitted curves over modelled time; the baseline is real work over that modelled time."""
    least_s = float(planned.time_s.min())
    longer_pct = 100.0 * (least_s / float(before.time_s[0]) - 1.0)
    row = Row(microbatches, AUTHORS, longer_pct)
    for slowdown in SLOWDOWNS:
        until_s = slowdown * least_s
        before_j = float(before.effective_j[0]) + before.blocking_total_w * until_s
        row.saving_pct[f"{slowdown:g}"] = baselines.saving_pct(before_j, planned.beside_j(until_s))
    return row


def _bound(microbatches: int, before: Priced, plans: PlanSet) -> Row:
    """No plan that ends by then, whatever its clocks, uses less; between two plans the later one's bound."""
    effective_j = plans.lower_bound_j - plans.blocking_total_w * plans.iteration_time_s
    row = Row(microbatches, BOUND, 0.0)
    for slowdown in SLOWDOWNS:
        until_s = slowdown * float(before.time_s[0])
        later = min(int(np.searchsorted(plans.iteration_time_s, until_s * (1 - 1e-9))), len(plans) - 1)
        least_j = float(effective_j[later]) + plans.blocking_total_w * until_s
        row.saving_pct[f"{slowdown:g}"] = baselines.saving_pct(before.beside_j(until_s), least_j)
    return row
