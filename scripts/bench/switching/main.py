"""What changes of clock cost: latency x workload x kind of plan, each played by the emulator.

Run: ``python scripts/bench/switching/main.py PROFILE [--microbatches 12 48] [--latency-ms 0 10 40]``
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.plan import FrequencyPlan, PlanSet, build, select
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.playing.costs import costs_of
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.profile import Profile, read_profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator

HIGH_W, LOW_W, LOW_MHZ = 83.64, 56.4, 300  # A100: the Perseus artifact; one public log
KINDS = {
    "one clock per computation": Switching(split="never"),
    "split": Switching(),
    "split, low waits": Switching(waits="auto"),
    "at most 10 per second": Switching(budget=ChangeBudget(10.0)),
    "at most 3 per second": Switching(budget=ChangeBudget(3.0)),
    "one clock per stage": Switching(budget=ChangeBudget(0.0)),
}
ITERATIONS, NOISE = 24, 0.02
RESERVE_PCT = 1.0  # as a job plans by default, for what varies


@dataclass(frozen=True, slots=True)
class Row:
    """One plan: as planned, and as played beside default clocks under the same noise."""

    microbatches: int
    latency_ms: float
    kind: str
    changes_per_s: float
    planned_saving_pct: float
    played_saving_pct: float
    played_slower_pct: float
    noisy_saving_pct: float
    noisy_slower_pct: float
    reserved_saving_pct: float
    reserved_slower_pct: float


def main() -> int:
    """Print rows as JSON, and as a table to standard error."""
    arguments = _arguments()
    profile = read_profile(arguments.profile)
    profile = replace(profile, blocking_w={max(profile.clocks_mhz): HIGH_W, LOW_MHZ: LOW_W})
    rows = []
    for microbatches in arguments.microbatches:
        for latency_ms in arguments.latency_ms:
            half_s = latency_ms / 2e3
            change = ClockChange(half_s, half_s, half_s)
            for kind, switching in KINDS.items():
                row = measured(profile, microbatches, latency_ms, kind, replace(switching, change=change))
                print(_line(row), file=sys.stderr)
                rows.append(row)
    print(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def measured(profile: Profile, microbatches: int, latency_ms: float, kind: str, switching: Switching) -> Row:
    """Plan, then play without and with noise."""
    schedule = textbook("1f1b", stages=profile.stages, microbatches=microbatches)
    plans, reserved = (
        build(profile, schedule, blocking_power_w=HIGH_W, switching=switching, reserve_pct=reserve_pct)
        for reserve_pct in (0.0, RESERVE_PCT)
    )
    plan = select(plans, Objective())
    quiet, noisy = (played(plans, plan, profile, noise) for noise in (0.0, NOISE))
    kept = played(reserved, select(reserved, Objective()), profile, NOISE)
    changes = costs_of(plan).changes_per_s
    return Row(microbatches, latency_ms, kind, changes, plan.saving_pct, *quiet, *noisy, *kept)


def played(plans: PlanSet, plan: FrequencyPlan, profile: Profile, noise: float) -> tuple[float, float]:
    """Saving and slowdown in percent, over iterations played with the same noise; the first is left out."""
    waiting_w = HIGH_W if plans.wait_clock is None else profile.blocking_w
    cluster = ClusterShape(change=plans.change, waiting_w=waiting_w)
    emulator = Emulator(plans, profile, cluster, conditions=Conditions(noise=noise, seed=1))
    ours = emulator.play(ITERATIONS, always=plan.index)
    default = emulator.play(ITERATIONS, always=DEFAULT_CLOCKS)
    spent_j, default_j = (found.energy_j[1:].sum() for found in (ours, default))
    took_s, default_s = (found.job_s[1:].sum() for found in (ours, default))
    return 100.0 * float(1.0 - spent_j / default_j), 100.0 * float(took_s / default_s - 1.0)


def _line(row: Row) -> str:
    return (
        f"{row.microbatches:>4}{row.latency_ms:>6g} ms  {row.kind:<28}{row.changes_per_s:>6.1f} /s"
        f"{row.planned_saving_pct:>8.2f} %"
        f"  played {row.played_saving_pct:.2f} % {row.played_slower_pct:+.2f} %"
        f"  with noise {row.noisy_saving_pct:.2f} % {row.noisy_slower_pct:+.2f} %"
        f"  and 1 % in reserve {row.reserved_saving_pct:.2f} % {row.reserved_slower_pct:+.2f} %"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--latency-ms", type=float, nargs="+", default=[0.0, 10.0, 40.0])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
