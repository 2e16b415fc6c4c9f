"""How few clocks does a sweep need, and what does a plan lose by the rest being predicted? See README.md.

python scripts/bench/sweep/main.py results.json [--seeds 5] [--only GPU]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work, duration_s, energy_j
from perseus_ds.plan.frontier import fastest
from perseus_ds.plan.problem import FREE, PlanProblem, problem_of
from perseus_ds.plan.record import baseline_of
from perseus_ds.profile import Point, Profile, smooth
from perseus_ds.profile.records import Computation
from perseus_ds.profile.sweep import PLACES, next_clock
from perseus_ds.schedule import Kind, textbook
from perseus_ds.solver.frontier import Frontier, solve_frontier
from perseus_ds.solver.problem import blend

GPUS = ("a100-sxm4-80gb", "a100-pcie-80gb", "a40", "h100-sxm", "h200")
VOLTAGES = {
    "h100-sxm, voltage rises earlier": ("h100-sxm", 0.85),
    "h100-sxm, voltage rises later": ("h100-sxm", 1.15),
}
"""Further voltage curves: those of a GPU with its clocks scaled."""
MICROBATCHES = 12
WEIGHTS = (1.02, 1.0, 1.0, 1.1)
WORKS = {Kind.FORWARD: Work(0.03, 0.2, 0.85), Kind.BACKWARD: Work(0.06, 0.2, 0.9)}
NORMAL_95 = 1.96
ERROR = 0.003  # of every measured time and energy
_SAME = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What a GPU really does at every clock from half of its highest on, which the sweep does not see."""

    profile: Profile
    grid_mhz: tuple[int, ...]
    problem: PlanProblem
    frontier: Frontier

    @classmethod
    def of(cls, gpu: str) -> Truth:
        """Compute all points and solve the true problem once."""
        name, scale = VOLTAGES.get(gpu, (gpu, 1.0))
        model = model_named(name)
        volts = tuple((scale * mhz, square) for mhz, square in model.voltage_squared)
        model = replace(model, voltage_squared=volts)
        clocks = [mhz for mhz in model.clocks_mhz if mhz >= 0.5 * model.max_clock_mhz]
        points: dict[Computation, tuple[Point, ...]] = {}
        for stage, weight in enumerate(WEIGHTS):
            for kind, work in WORKS.items():
                own = work.times(weight)
                times = {mhz: duration_s(model, mhz, own) for mhz in clocks}
                reached = min(mhz for mhz in clocks if times[mhz] <= times[max(clocks)] * _SAME)
                points[stage, kind] = tuple(
                    Point(mhz, times[mhz], energy_j(model, mhz, own), achieved_mhz=min(mhz, reached))
                    for mhz in sorted(clocks, reverse=True)
                )
        profile = Profile(points, blocking_power_w=float(model.blocking_w[-1][1]))
        schedule = textbook("1f1b", stages=profile.stages, microbatches=MICROBATCHES)
        problem = problem_of(profile, schedule, profile.blocking_power_w or 0.0)
        return cls(profile, tuple(model.clocks_mhz), problem, solve_frontier(problem.activities))

    def judged(self, believed: Profile) -> tuple[float, float, float]:
        """Plan for no slowdown with another profile and run that in truth.

        Returns the time and the energy lost (%), and how many points of saving were expected too much.
        """
        planned = problem_of(believed, self.problem.schedule, self.problem.waiting_w)
        limit_s = baseline_of(planned.schedule, planned.options, planned.fixed_s, 0.0).iteration_time_s
        every = fastest(planned, FREE, also_s=limit_s)
        within = np.flatnonzero(every.time_s <= max(limit_s, every.time_s[0]) * _SAME)
        plan = every.at(within[-1:].astype(np.int32))
        choice, other = (self._numbered(planned, one) for one in (plan.choice, plan.other))
        highest = np.zeros_like(choice)
        time_s, cost_j = spent(self.problem, choice, other, plan.share)
        own_s, own_j = spent(self.problem, highest, highest, plan.share)
        _, expected_j = spent(planned, plan.choice, plan.other, plan.share)
        _, default_j = spent(planned, highest, highest, plan.share)
        order = np.argsort(self.frontier.time_s)
        best_j = float(np.interp(time_s, self.frontier.time_s[order], self.frontier.cost_j[order]))
        return (
            100.0 * (time_s / own_s - 1.0),
            100.0 * (cost_j / (best_j + self.problem.total_w * time_s) - 1.0),
            100.0 * (cost_j / own_j - expected_j / default_j),
        )

    def off(self, believed: Profile) -> NDArray[np.float64]:
        """By what share times and energies are off, and their stated standard errors as shares.

        Shape: [times and energies, off and stated, points of all computations].
        """
        found = []
        for key in believed.points:
            true = {point.clock_mhz: point for point in self.profile.points[key]}
            for one in believed.of(*key):
                own = true[one.clock_mhz]
                found.append(
                    (
                        (one.time_s / own.time_s - 1.0, one.time_se_s / one.time_s),
                        (one.energy_j / own.energy_j - 1.0, one.energy_se_j / one.energy_j),
                    )
                )
        return np.array(found).transpose(1, 2, 0)

    def _numbered(self, planned: PlanProblem, choice: NDArray[np.int32]) -> NDArray[np.int32]:
        """The same clocks by their numbers in truth."""
        found, keys = np.array(choice).copy(), list(planned.options)
        for column, table in enumerate(planned.activities.table_of.tolist()):
            if table < len(keys):
                mhz = planned.options[keys[table]].clock_mhz[found[0, column]]
                true_mhz = self.problem.options[keys[table]].clock_mhz
                found[0, column] = int(np.flatnonzero(true_mhz == mhz)[0])
        return found


def spent(
    problem: PlanProblem, choice: NDArray[np.int32], other: NDArray[np.int32], share: NDArray[np.float64]
) -> tuple[float, float]:
    """How long an iteration lasts (s), and what it takes with all waiting (J)."""
    lasts_s, cost_j = blend(problem.activities, choice, other, share)
    starts_s = problem.dag.earliest_starts(lasts_s[0].tolist(), problem.fixed_s)
    time_s = float((np.array(starts_s) + lasts_s[0]).max())
    return time_s, float(cost_j.sum()) + problem.total_w * time_s


def swept(truth: Truth, share: float, seed: int) -> tuple[Profile, Sequence[int]]:
    """Sweep a GPU whose every time and energy is off by itself; return the profile and its clocks."""
    draw, asked = np.random.default_rng(seed), list[int]()
    points: dict[Computation, list[Point]] = {}
    grid = truth.grid_mhz
    while clock := next_clock(points, asked, grid, len(PLACES)):
        asked.append(clock)
        for key, own in truth.profile.points.items():
            one = next(point for point in own if point.clock_mhz == clock)
            time, energy = 1.0 + share * draw.standard_normal(2)
            points.setdefault(key, []).append(
                replace(
                    one,
                    time_s=one.time_s * float(time),
                    energy_j=one.energy_j * float(energy),
                    time_se_s=share * one.time_s,
                    energy_se_j=share * one.energy_j,
                )
            )
    whole = {key: tuple(own) for key, own in points.items()}
    return replace(truth.profile, points=whole, grid_mhz=grid), asked


def row(gpu: str, share: float, seeds: Sequence[int]) -> dict[str, object]:
    """What sweeps of a GPU lose, and how far their curves are off."""
    truth, counts = Truth.of(gpu), list[int]()
    lost, off = list[tuple[float, float, float]](), list[NDArray[np.float64]]()
    for seed in seeds:
        profile, asked = swept(truth, share, seed)
        believed = smooth(profile)
        counts.append(len(asked))
        lost.append(truth.judged(believed))
        off.append(truth.off(believed))
    times, energies, too_much = zip(*lost, strict=True)
    found = {"gpu": gpu, "of": len(truth.grid_mhz), "seeds": len(seeds)}
    found |= {"clocks": statistics.fmean(counts), "most_clocks": max(counts)}
    found |= {"slower_pct": statistics.fmean(times)}
    found |= {"energy_lost_pct": statistics.fmean(energies), "energy_lost_worst_pct": max(energies)}
    found |= {"expected_too_much_points": statistics.fmean(too_much)}
    for name, (error, stated) in zip(("time", "energy"), np.concatenate(off, axis=2), strict=True):
        found[f"{name}_off_pct"] = 100.0 * float(np.abs(error).mean())
        found[f"{name}_inside_pct"] = 100.0 * float(np.mean(np.abs(error) <= NORMAL_95 * stated))
    return found


def main() -> None:
    """Write a row for every GPU."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    seeds, rows = range(options.seeds), list[dict[str, object]]()
    for gpu in (one for one in (*GPUS, *VOLTAGES) if options.only in one):
        rows.append(row(gpu, ERROR, seeds))
        sys.stderr.write(f"{rows[-1]}\n")
        options.results.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
