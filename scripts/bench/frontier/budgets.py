"""Savings and CPU time of plans under budgets of clock changes, and of plans with whole clocks.

Run: ``python scripts/bench/frontier/budgets.py [PATTERN ...]``. With ``PYTHONPATH`` set to another checkout
it measures that one. Every row states the saving at the time of all clocks at maximum, the mean saving over a
hundred times from there to the end of the frontier (each reads the nearest faster plan), and the CPU seconds
of the whole build after the machine code has been loaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch

import numpy as np

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import ChangeBudget, PlanSet, Switching, build
from perseus_ds.profile import Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.gpt3 import gpt3_profile

CHANGE = ClockChange(0.004, 0.006, 0.006)
RATES = (1, 2, 3, 5, 10)


def cases() -> Iterator[tuple[str, Profile, int, Switching]]:
    """Yield name, profile, microbatches and switching of every case."""
    profile = gpt3_profile()
    for microbatches in (12, 48, 96):
        for rate in RATES:
            switching = Switching(CHANGE, budget=ChangeBudget(per_gpu_per_s=rate))
            yield f"budget 8x{microbatches} {rate}/s", profile, microbatches, switching
    for microbatches in (12, 48):
        for rate in (2, 5):
            switching = Switching(CHANGE, split="never", budget=ChangeBudget(per_gpu_per_s=rate))
            yield f"budget-whole 8x{microbatches} {rate}/s", profile, microbatches, switching
        switching = Switching(CHANGE, budget=ChangeBudget(per_gpu_per_s=0.0))
        yield f"budget 8x{microbatches} 0/s", profile, microbatches, switching
        for rate in (4, 20):
            switching = Switching(CHANGE, budget=ChangeBudget(per_node_per_s=rate))
            yield f"node 8x{microbatches} {rate}/s", profile, microbatches, switching
    for clocks in (38, 8, 5):
        for microbatches in (12, 48, 96):
            whole, name = Switching(CHANGE, split="never"), f"whole {clocks} clocks 8x{microbatches}"
            yield name, _with_clocks(profile, clocks), microbatches, whole


def _with_clocks(profile: Profile, count: int) -> Profile:
    """Keep so many clocks, evenly spread, the highest and the lowest among them."""
    points = {
        key: tuple(own[i] for i in np.unique(np.linspace(0, len(own) - 1, count).round().astype(int)))
        for key, own in profile.points.items()
    }
    return replace(profile, points=points)


def savings(plans: PlanSet) -> tuple[float, float]:
    """Return the saving at the time of all clocks at maximum, and its mean over slower times, in percent."""
    base = plans.baseline
    base_w = plans.blocking_power_w * plans.schedule.ranks
    read_s = np.linspace(base.iteration_time_s, max(plans.t_star_s, base.iteration_time_s), 100)
    row = np.searchsorted(plans.iteration_time_s, read_s * (1 + 1e-9), side="right") - 1
    saved = 1.0 - (plans.effective_energy_j[np.maximum(row, 0)] + base_w * read_s) / base.energy_j
    return 100.0 * float(saved[0]), 100.0 * float(saved.mean())


def main() -> None:
    """Measure every case whose name fits one of the patterns."""
    patterns = sys.argv[1:] or ["*"]
    for name, profile, microbatches, switching in cases():
        if not any(fnmatch(name, pattern) for pattern in patterns):
            continue
        for_compiling = textbook("1f1b", stages=8, microbatches=8)
        build(profile, for_compiling, blocking_power_w=profile.blocking_power_w, switching=switching)
        schedule = textbook("1f1b", stages=8, microbatches=microbatches)
        began = time.process_time()
        made = build(profile, schedule, blocking_power_w=profile.blocking_power_w, switching=switching)
        cpu_s = time.process_time() - began
        at_base, mean = savings(made)
        plans = len(made.iteration_time_s)
        print(f"{name:28s} {at_base:8.3f} % {mean:8.3f} % mean {plans:5d} plans {cpu_s:8.2f} s", flush=True)


if __name__ == "__main__":
    main()
