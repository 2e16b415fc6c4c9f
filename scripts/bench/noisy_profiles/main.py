"""What do errors of a profile's entries cost, judged on the true profile? See README.md.

python scripts/bench/noisy_profiles/main.py results.json [--seeds 8] [--first-seed 0]
    [--published PROFILE.csv] [--only NAME]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perseus_ds.device.simulated import Work, model_named
from perseus_ds.device.simulated.physics import duration_s, energy_j
from perseus_ds.plan.solving.margins import margins_s
from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.plan.solving.strategy import fastest
from perseus_ds.plan.solving.switching import FREE
from perseus_ds.profile import Point, Profile, read_profile, smoothed
from perseus_ds.schedule import Kind, textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, gpt3_profile
from perseus_ds.solver import Frontier, blended, solve_frontier

MICROBATCHES = 12
SHARES = (0.005, 0.01, 0.02)
CLOCKS = (12, 38)
TIME_BARS_PCT, ENERGY_BARS_PCT = (0.1, 0.2, 0.3), (0.5, 1.0, 1.5)
WORKS = {Kind.FORWARD: Work(0.03, 0.2, 0.85), Kind.BACKWARD: Work(0.06, 0.2, 0.9)}
STAGES = {
    "simulated A40": ("a40", (1.02, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.12)),
    "simulated A100 PCIe, four unlike stages": ("a100-pcie-80gb", (1.06, 0.97, 1.0, 1.15)),
    "simulated H100, eight unlike stages": ("h100-sxm", (1.16, 0.8, 1.03, 0.95, 0.96, 0.98, 0.84, 0.95)),
}


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A true profile, the problem that it states, and the frontier of that."""

    profile: Profile
    waiting_w: float
    problem: PlanProblem
    frontier: Frontier

    @classmethod
    def of(cls, profile: Profile) -> Truth:
        """Solve it once."""
        waiting_w = profile.blocking_power_w or BLOCKING_POWER_W
        schedule = textbook("1f1b", stages=profile.stages, microbatches=MICROBATCHES)
        problem = problem_of(profile, schedule, waiting_w)
        return cls(profile, waiting_w, problem, solve_frontier(problem.activities))

    def judged(self, believed: Profile) -> tuple[float, float]:
        """Plan for no slowdown with another profile, and run that in truth.

        Returns by how much it lasts longer than all clocks at maximum, and takes more than the least at its
        time, in percent.
        """
        planned = problem_of(believed, self.problem.schedule, self.waiting_w).keeping(margins_s(believed))
        limit_s = planned.baseline(0.0).iteration_time_s
        every = fastest(planned, FREE, also_s=limit_s)
        within = [
            at for at in range(len(every)) if every.time_s[at] <= max(limit_s, every.time_s[0]) * (1 + 1e-9)
        ]
        plan = every.at(np.array(within[-1:], np.int32))
        lasts_s, cost_j = blended(self.problem.activities, plan.choice, plan.other, plan.share)
        starts_s = self.problem.dag.earliest_starts(lasts_s[0].tolist(), self.problem.fixed_s)
        time_s = float((np.array(starts_s) + lasts_s[0]).max())
        waiting_j, known = self.problem.total_w * time_s, self.frontier
        ascending = np.argsort(known.time_s)
        best_j = float(np.interp(time_s, known.time_s[ascending], known.cost_j[ascending]))
        own_s = self.problem.baseline(self.waiting_w).iteration_time_s
        return (
            100.0 * (time_s / own_s - 1.0),
            100.0 * ((float(cost_j.sum()) + waiting_j) / (best_j + waiting_j) - 1.0),
        )


def true_profiles(published: Path | None) -> dict[str, Profile]:
    """The published profile where it is given, and simulated GPUs."""
    found = {"simulated A100, GPT-3": gpt3_profile()}
    if published is not None:
        found["published A100, GPT-3"] = replace(read_profile(published), blocking_power_w=BLOCKING_POWER_W)
    return found | {name: _simulated(*own) for name, own in STAGES.items()}


def _simulated(model: str, weights: Sequence[float]) -> Profile:
    gpu = model_named(model)
    clocks = [mhz for mhz in gpu.clocks_mhz if mhz >= 0.5 * gpu.max_clock_mhz]
    points = {
        (stage, kind): tuple(Point(mhz, duration_s(gpu, mhz, own), energy_j(gpu, mhz, own)) for mhz in clocks)
        for stage, weight in enumerate(weights)
        for kind, work in WORKS.items()
        for own in [work.scaled(weight)]
    }
    return Profile(points, blocking_power_w=float(gpu.blocking_w[-1][1]))


def at_clocks(profile: Profile, count: int) -> Profile:
    """So many of its clocks, from the highest to the lowest."""
    points = {}
    for key in profile.points:
        own = profile.of(*key)
        places = np.unique(np.linspace(0, len(own) - 1, min(count, len(own))).round().astype(int))
        points[key] = tuple(own[at] for at in places)
    return replace(profile, points=points)


def with_errors(profile: Profile, share: float, seed: int, *, told: bool) -> Profile:
    """Every time and energy off by itself; ``told`` as a profile.json states it, a CSV does not."""
    draw = np.random.default_rng(seed)

    def wrong(point: Point) -> Point:
        time, energy = 1.0 + share * draw.standard_normal(2)
        errors = (share * point.time_s, share * point.energy_j) if told else (0.0, 0.0)
        return replace(
            point,
            time_s=point.time_s * float(time),
            energy_j=point.energy_j * float(energy),
            time_se_s=errors[0],
            energy_se_j=errors[1],
        )

    return replace(profile, points={key: tuple(map(wrong, profile.of(*key))) for key in profile.points})


def as_measured(profile: Profile) -> Profile:
    """Believe every point: what is planned has no errors to be drawn by."""
    points = {
        key: tuple(replace(point, time_se_s=0.0, energy_se_j=0.0) for point in own)
        for key, own in profile.points.items()
    }
    return replace(profile, points=points)


def row(
    truth: Truth, share: float, seeds: Sequence[int], believe: Callable[[Profile], Profile], *, told: bool
) -> Mapping[str, float]:
    """Means and worst over the seeds, in percent."""
    found = [truth.judged(believe(with_errors(truth.profile, share, seed, told=told))) for seed in seeds]
    times, energies = zip(*found, strict=True)
    return {
        "slower_pct": statistics.fmean(times),
        "slower_worst_pct": max(times),
        "energy_over_least_pct": statistics.fmean(energies),
    }


def main() -> None:
    """Write a row for every profile, number of clocks, form of file and size of errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    rows = []
    for name, profile in true_profiles(options.published).items():
        if options.only not in name:
            continue
        for clocks in CLOCKS:
            truth = Truth.of(at_clocks(profile, clocks))
            for told in (True, False):
                for share, time_bar, energy_bar in zip(SHARES, TIME_BARS_PCT, ENERGY_BARS_PCT, strict=True):
                    before = row(truth, share, seeds, as_measured, told=told)
                    now = row(truth, share, seeds, lambda one: smoothed(one, scatter=True), told=told)
                    rows.append(
                        {"profile": name, "clocks": clocks, "file": "json" if told else "csv"}
                        | {"error_pct": 100.0 * share, "before": before, "now": now}
                        | {
                            "met": now["slower_pct"] <= time_bar
                            and now["energy_over_least_pct"] <= energy_bar
                        }
                    )
                    sys.stderr.write(f"{rows[-1]}\n")
                    options.results.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
