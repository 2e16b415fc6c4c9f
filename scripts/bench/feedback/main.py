"""What plans that correct themselves save: chosen by draws, run by the emulator and by a player beside it.

Run: ``python scripts/bench/feedback/main.py [PROFILE] [--microbatches 12 48 96] [--noise-pct 2]``

PROFILE is a CSV of Zeus; without one, eight stages of a simulated A40. Iterations are drawn with seeds that
neither the learning nor the choice has seen. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import timeit
from pathlib import Path

from player import play

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.plan import PlanSet, build, select
from perseus_ds.plan.feedback.made import with_feedback
from perseus_ds.plan.feedback.policy import tables_of
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.profile import Profile, read_profile
from perseus_ds.runtime.control.feedback import Following
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, ClusterShape, Conditions, Emulator

sys.path.append(str(Path(__file__).resolve().parents[1] / "switching"))
from profiles import eight_stages, varying

WAITING_W = 83.64
SEED = 424_242
LOOK_UPS = 20_000


def main() -> int:
    """Print rows as JSON."""
    given = _arguments()
    profile = eight_stages("a40") if given.profile is None else read_profile(given.profile)
    rows = [
        _row(varying(profile, pct / 100.0), pct, microbatches, given)
        for microbatches in given.microbatches
        for pct in given.noise_pct
    ]
    print(
        json.dumps({"latency_ms": given.latency_ms, "iterations": given.iterations, "rows": rows}, indent=1)
    )
    return 0


def _row(profile: Profile, pct: float, microbatches: int, given: argparse.Namespace) -> dict[str, object]:
    half_s = given.latency_ms / 2e3
    plans = build(
        profile,
        textbook("1f1b", stages=profile.stages, microbatches=microbatches),
        blocking_power_w=profile.blocking_power_w or WAITING_W,
        reserve_pct="auto",
        switching=Switching(change=ClockChange(half_s, half_s, half_s)),
    )
    began_s = time.process_time()
    made = with_feedback(plans, profile)
    took_s = time.process_time() - began_s
    own = made.feedback
    return {
        "microbatches": microbatches,
        "noise_pct": pct,
        "reserve_pct": plans.reserve_pct,
        "drawn": None if own is None else [own.saving_pct, own.slowdown_pct],
        "drawn_without": None if own is None else [own.without_pct, own.without_slowdown_pct],
        "emulated": _emulated(made, profile, pct / 100.0, given.iterations),
        "emulated_without": _emulated(plans, profile, pct / 100.0, given.iterations),
        "independent": _independent(made, profile, pct / 100.0, given.iterations),
        "independent_without": _independent(plans, profile, pct / 100.0, given.iterations),
        "learning_cpu_s": took_s,
        "look_up_us": _look_up_us(made),
    }


def _emulated(plans: PlanSet, profile: Profile, noise: float, iterations: int) -> list[float]:
    """Saving, slowdown (percent) and changes of clock per second and GPU; without the first iteration."""
    cluster = ClusterShape(change=plans.change, waiting_w=plans.baseline.blocking_power_w)
    emulator = Emulator(plans, profile, cluster, conditions=Conditions(noise=noise, seed=SEED))
    index = select(plans, Objective()).index
    ours, default = (emulator.play(iterations + 1, always=one) for one in (index, DEFAULT_CLOCKS))
    took_s, default_s = ours.job_s[1:].sum(), default.job_s[1:].sum()
    saved = 1.0 - ours.energy_j[1:].sum() / default.energy_j[1:].sum()
    changes = ours.changes[1:].sum() / plans.schedule.ranks / took_s
    return [100.0 * float(saved), 100.0 * float(took_s / default_s - 1.0), float(changes)]


def _independent(plans: PlanSet, profile: Profile, noise: float, iterations: int) -> list[float]:
    index = select(plans, Objective()).index
    return list(play(plans, profile, index, noise=noise, iterations=iterations, seed=SEED + 1))


def _look_up_us(plans: PlanSet) -> float | None:
    """CPU time of one correction on the thread that makes it."""
    tables = tables_of(plans, 0, 0)
    if tables is None:
        return None
    following = Following(tables, plans.change.longest_s)
    following.begins(0.0, 0.0)
    timer = timeit.Timer(lambda: following.corrects(1, 0.1, 0.1), timer=time.process_time)
    return 1e6 * min(timer.repeat(3, LOOK_UPS)) / LOOK_UPS


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path, nargs="?")
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 48, 96])
    parser.add_argument("--noise-pct", type=float, nargs="+", default=[2.0])
    parser.add_argument("--latency-ms", type=float, default=10.0)
    parser.add_argument("--iterations", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
