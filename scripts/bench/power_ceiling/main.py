"""Throughput under a power ceiling: what a pipeline loses in time when its mean power has to fall.

Run: ``python scripts/bench/power_ceiling/main.py PROFILE [--microbatches 12] [--picture P] > ceiling.json``
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from picture import draw_ceiling

sys.path.append(str(Path(__file__).resolve().parents[1] / "paper"))
import baselines
from baselines import Priced

from perseus_ds.plan import build
from perseus_ds.profile import read_profile
from perseus_ds.schedule import textbook

LOWER_PCT = (5, 10, 15, 20, 25, 30)


def main() -> int:
    """Plan, price the uniform settings, and find what each loses under every ceiling."""
    arguments = _arguments()
    profile = read_profile(arguments.profile)
    schedule = textbook("1f1b", stages=profile.stages, microbatches=arguments.microbatches)
    power_w = arguments.blocking_power_w
    instance = baselines.instance_of(profile, schedule, blocking_power_w=power_w)
    plans = build(profile, schedule, blocking_power_w=power_w, verify=True)
    before = baselines.price(instance, baselines.all_maximum(instance))
    methods = {
        "ours": Priced(plans.iteration_time_s, plans.effective_energy_j, plans.blocking_total_w),
        "one power limit for all": baselines.price(instance, baselines.zeus_global(instance)),
        "one clock for all": baselines.price(instance, baselines.uniform_clock(instance)),
    }
    lost = {name: [time_lost_pct(before, found, pct) for pct in LOWER_PCT] for name, found in methods.items()}
    print(json.dumps({"power_lower_pct": LOWER_PCT, "time_lost_pct": lost}, indent=1))
    for name, values in lost.items():
        print(f"{name:<24}" + "".join(f"{value:>8.2f}" for value in values), file=sys.stderr)
    if arguments.picture is not None:
        shape = f"{profile.stages} stages x {arguments.microbatches} microbatches"
        draw_ceiling(before, methods, arguments.picture, shape=shape)
    return 0


def time_lost_pct(before: Priced, found: Priced, lower_pct: float) -> float:
    """Return how much longer the fastest plan takes whose mean power is that much lower; NaN if none is."""
    ceiling_w = (1.0 - lower_pct / 100.0) * float(before.energy_j[0] / before.time_s[0])
    under = found.energy_j / found.time_s <= ceiling_w
    if not under.any():
        return float("nan")
    return 100.0 * (float(np.min(found.time_s[under])) / float(before.time_s[0]) - 1.0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path, help="CSV of Zeus, or a profile.json")
    parser.add_argument("--microbatches", type=int, default=12)
    parser.add_argument("--blocking-power-w", type=float, default=83.64, help="A100, as the artifact has it")
    parser.add_argument("--picture", type=Path, help="write the picture to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
