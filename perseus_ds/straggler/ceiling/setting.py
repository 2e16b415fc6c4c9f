"""Set a running job's power ceiling, or lift it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.config import Objective
from perseus_ds.errors import PerseusError
from perseus_ds.plan import PlanSet, read_plans, select
from perseus_ds.plan.power import power_w
from perseus_ds.run_directory import RunDirectory
from perseus_ds.straggler.announcement.announcing import leave, running_job
from perseus_ds.straggler.ceiling.power_cap import PowerCap
from perseus_ds.straggler.ceiling.power_caps import CAP_FILE


@dataclass(frozen=True, slots=True)
class CapSet:
    """What was written, and what it costs by the plan file; ``told`` is empty where there is no plan yet."""

    path: Path
    cap: PowerCap
    told: str
    slowdown_pct: float | None = None
    power_w: float | None = None


def set_power_cap(run_dir: str | Path, cap: PowerCap) -> CapSet:
    """Have a running job hold a ceiling from within two iterations on; one of None lifts what holds.

    It is believed if the run directory's owner or root wrote it.

    Raises:
        OSError: the file cannot be written.
        PerseusError: a ceiling that is over already, no running job, or a user who is not believed.
    """
    directory = RunDirectory(Path(run_dir))
    check_cap(cap, time.time())
    attached = running_job(directory)
    if attached.get("start") == "observe":
        raise PerseusError(f"{directory.path}: its job only observes, a ceiling would change nothing")
    path = leave(directory, CAP_FILE, None if cap.power_cap_w is None else cap.to_json())
    if cap.power_cap_w is None or cap.per != "pipeline" or not directory.plan.is_file():
        return CapSet(path, cap, "")
    return _costing(path, cap, read_plans(directory.plan))


def check_cap(cap: PowerCap, now_s: float) -> None:
    """Refuse a ceiling that cannot be meant; ``now_s`` is seconds since 1970.

    Raises:
        PerseusError: a bad number, or a ceiling that is over before it begins.
    """
    watts = cap.power_cap_w
    if watts is not None and not (math.isfinite(watts) and watts > 0.0):
        raise PerseusError(f"a ceiling of {watts} W is not a finite number above 0")
    if not (math.isfinite(cap.ramp_w_per_s) and cap.ramp_w_per_s >= 0.0):
        raise PerseusError(f"a ramp of {cap.ramp_w_per_s} W/s is not a finite number from 0 on")
    if cap.until_s is not None and cap.until_s <= max(now_s, cap.start_s or 0.0):
        raise PerseusError("the ceiling would be over before it begins", hint="name a later time")


def _costing(path: Path, cap: PowerCap, plans: PlanSet) -> CapSet:
    """Look up the fastest plan under the ceiling beside the fastest one that loses no time."""
    assert cap.power_cap_w is not None
    free = select(plans, Objective())
    power = power_w(plans)
    fits = [index for index in range(len(plans)) if index >= free.index and power[index] <= cap.power_cap_w]
    if not fits:
        least = int(power.argmin())
        slower_pct = 100.0 * (plans.iteration_time_s[least] / free.iteration_time_s - 1.0)
        told = f"no plan holds it: the slowest takes {power[least]:.0f} W and runs, {slower_pct:.1f} % slower"
        return CapSet(path, cap, told, float(slower_pct), float(power[least]))
    plan = plans.plan(fits[0])
    slower_pct = 100.0 * (plan.iteration_time_s / free.iteration_time_s - 1.0)
    told = f"{slower_pct:.1f} % slower" if fits[0] != free.index else "no slower: the plan takes less"
    return CapSet(path, cap, told, slower_pct, float(power[fits[0]]))
