"""Four jobs on two nodes through a day whose ceilings change 20 times (emulated), beside an LP's split.

Run: ``python scripts/bench/ceiling/main.py [--seed 0] [--hours 24]``. The split, the files, their
reading, the choice of plans and its delay of two iterations are the product's own; iterations are emulated.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from perseus_ds.config import Objective
from perseus_ds.device.simulated import Work, model_named
from perseus_ds.device.simulated.physics import duration_s, energy_j
from perseus_ds.plan import PlanSet, build, select, write_plans
from perseus_ds.plan.power import rank_power_w
from perseus_ds.profile import Point, Profile
from perseus_ds.run_directory import RankPlace, RunDirectory, append_event, write_places
from perseus_ds.schedule import Kind, textbook
from perseus_ds.straggler import CapNumbers, FrontierIndex, HeldCeiling, PowerCap, PowerCaps
from perseus_ds.straggler.ceiling.node_ceilings import share_power
from perseus_ds.straggler.ceiling.sharing import JobCurve, curve_of

NODES = ("node-0", "node-1")
CHANGES = 20
NOISE = 0.003
LOOK_S = 0.25  # the watch over notices looks so often
SETTLED_S = 60.0
OVER = 1.02
MOST_OVER_S, MOST_ABOVE_PCT = 2.0, 1.0
LOWEST_MHZ = 855
SHAPES = {
    "a": (4, 8, 0.018, ("node-0",) * 4),
    "b": (4, 8, 0.024, ("node-1",) * 4),
    "c": (4, 12, 0.012, ("node-0", "node-0", "node-1", "node-1")),
    "d": (2, 8, 0.021, ("node-0", "node-0", "node-1", "node-1")),
}
"""Stages, microbatches, a forward in seconds, and the node of every rank."""


@dataclass
class EmulatedJob:
    """A job iteration by iteration: what it reads, what it runs, what it takes on every node."""

    directory: RunDirectory
    plans: PlanSet
    gpus: list[dict[str, int]]
    now_s: float
    ends_s: list[float] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = FrontierIndex.of(self.plans, Objective())
        pipelines = sum(sum(on.values()) for on in self.gpus) // len(self.gpus)
        self.ceiling = HeldCeiling([self.index], [pipelines])
        self.caps = PowerCaps(self.directory.notices)
        self.posted: CapNumbers | None = None
        power_w = rank_power_w(self.plans, self.index.expected_s)
        counts = np.array([[on.get(node, 0) for node in NODES] for on in self.gpus], dtype=np.float64)
        self.node_w: NDArray[np.float64] = power_w.T @ counts

    def run_until(self, end_s: float, random: np.random.Generator, settled_s: float) -> None:
        """Run all iterations that end before a moment; files do not change after ``settled_s``."""
        while True:
            plan = self.ceiling.plans[0]
            lasts_s = float(self.index.expected_s[plan]) * (1.0 + NOISE * float(random.standard_normal()))
            if self.now_s + lasts_s >= end_s:
                return
            self.now_s += lasts_s
            self.ends_s.append(self.now_s)
            self.ran.append(plan)
            self.ceiling.observe(self.posted, lasts_s)
            if self.now_s < settled_s:
                cap = self.caps.poll(self.now_s - LOOK_S).cap
                watts = None if cap is None else cap.power_cap_w
                self.posted = None if watts is None else CapNumbers(watts, of_job=True)

    @property
    def curve(self) -> JobCurve:
        """Power on every node against time, as the split sees it."""
        first = select(self.plans, Objective()).index
        return curve_of(
            self.plans.iteration_time_s[first:], rank_power_w(self.plans)[:, first:], self.gpus, NODES
        )


def main() -> int:
    """Emulate the day and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hours", type=float, default=24.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = day(Path(folder), np.random.default_rng(arguments.seed), 3600.0 * arguments.hours)
    print(json.dumps(figures, indent=1))
    kept = figures["longest_over_s"] <= MOST_OVER_S and figures["above_lp_pct_worst"] <= MOST_ABOVE_PCT
    return 0 if kept else 1


def day(folder: Path, random: np.random.Generator, lasts_s: float) -> dict[str, float]:
    """Change the ceilings at random moments, and let the jobs follow."""
    jobs = [made(folder / name, *shape) for name, shape in SHAPES.items()]
    curves = [job.curve for job in jobs]
    most_w = sum(curve.power_w[0] for curve in curves)
    least_w = sum(curve.power_w[-1] for curve in curves)
    changes_s = np.sort(random.uniform(0.02, 0.98, CHANGES) * lasts_s)
    moments_s = [0.0, *changes_s.tolist(), lasts_s]
    levels_w = [2.0 * most_w]
    excess_pct = []
    for at, (begin_s, end_s) in enumerate(pairwise(moments_s)):
        if at:
            levels_w.append(least_w + (most_w - least_w) * random.uniform(0.03, 1.1, len(NODES)))
            caps_w = dict(zip(NODES, levels_w[-1].tolist(), strict=True))
            share_power([job.directory.path for job in jobs], caps_w, PowerCap(None), now_s=begin_s)
        for job in jobs:
            job.run_until(end_s, random, begin_s + SETTLED_S)
        if at and end_s - begin_s > 2.0 * SETTLED_S:
            lost = sum(lost_share(job, begin_s + SETTLED_S, end_s) for job in jobs) / sum(
                c.gpus for c in curves
            )
            excess_pct.append(100.0 * ((1.0 + lost) / (1.0 + best(curves, levels_w[-1])) - 1.0))
    over_s = [longest_over_s(jobs, node, moments_s, levels_w) for node in range(len(NODES))]
    return {
        "changes": float(CHANGES),
        "compared": float(len(excess_pct)),
        "longest_over_s": max(over_s),
        "above_lp_pct_worst": max(excess_pct),
        "above_lp_pct_mean": float(np.mean(excess_pct)),
        "longest_iteration_s": max(float(job.index.expected_s.max()) for job in jobs),
        "iterations": float(sum(len(job.ran) for job in jobs)),
    }


def lost_share(job: EmulatedJob, begin_s: float, end_s: float) -> float:
    """GPUs times the share of time that they lost, by what ran."""
    ends_s = np.array(job.ends_s)
    within = (ends_s > begin_s) & (ends_s <= end_s)
    if not within.any():
        return 0.0
    took_s = job.plans.iteration_time_s[np.array(job.ran)[within]].mean()
    free_s = job.plans.iteration_time_s[job.index.objective]
    return sum(sum(on.values()) for on in job.gpus) * float(took_s / free_s - 1.0)


def best(curves: list[JobCurve], caps_w: NDArray[np.float64]) -> float:
    """The least share of GPU time that any mixture of points loses under the ceilings."""
    gpus = sum(curve.gpus for curve in curves)
    rows = np.repeat(np.arange(len(curves)), [len(curve.time_s) for curve in curves])
    found = linprog(
        np.concatenate([curve.gpus * curve.slowdown / gpus for curve in curves]),
        A_ub=np.concatenate([curve.power_w for curve in curves]).T,
        b_ub=caps_w,
        A_eq=(rows[None] == np.arange(len(curves))[:, None]).astype(float),
        b_eq=np.ones(len(curves)),
    )
    return float(found.fun)


def longest_over_s(
    jobs: list[EmulatedJob], node: int, moments_s: list[float], levels_w: list[NDArray[np.float64]]
) -> float:
    """How long a node took more than its ceiling and 2 % at a stretch, by the mean of every iteration."""
    times_s = np.unique(np.concatenate([*(job.ends_s for job in jobs), moments_s]))
    middle_s = (times_s[1:] + times_s[:-1]) / 2.0
    taken_w = np.zeros(len(middle_s))
    for job in jobs:
        which = np.minimum(np.searchsorted(job.ends_s, middle_s), len(job.ran) - 1)
        taken_w += job.node_w[np.array(job.ran)[which], node]
    level = np.array([row[node] for row in levels_w])
    over = taken_w > OVER * level[np.searchsorted(moments_s, middle_s) - 1]
    longest_s = lasting_s = 0.0
    for is_over, piece_s in zip(over.tolist(), np.diff(times_s).tolist(), strict=True):
        lasting_s = lasting_s + piece_s if is_over else 0.0
        longest_s = max(longest_s, lasting_s)
    return longest_s


def made(path: Path, stages: int, microbatches: int, forward_s: float, hosts: tuple[str, ...]) -> EmulatedJob:
    """Plan a job from the physics of simulated GPUs, and leave what a running one leaves."""
    gpu = model_named("a100-sxm4-80gb")
    works = {Kind.FORWARD: Work(forward_s, 0.065, 1.0), Kind.BACKWARD: Work(2.0 * forward_s, 0.12, 1.0)}
    clocks_mhz = [clock for clock in gpu.clocks_mhz if clock >= LOWEST_MHZ]
    heavier = [1.0 + 0.05 * (stage == stages - 1) for stage in range(stages)]
    points = {
        (stage, kind): tuple(
            Point(mhz, duration_s(gpu, mhz, own), energy_j(gpu, mhz, own)) for mhz in clocks_mhz
        )
        for stage in range(stages)
        for kind, work in works.items()
        for own in [work.scaled(heavier[stage])]
    }
    schedule = textbook("1f1b", stages=stages, microbatches=microbatches)
    plans = build(Profile(points, blocking_power_w=83.64), schedule, blocking_power_w=83.64)
    directory = RunDirectory(path)
    append_event(
        directory.events, "attached", {"replicas": 1, "host": socket.gethostname(), "pid": os.getpid()}
    )
    write_plans(plans, directory.plan)
    places = [RankPlace(at // stages, at % stages, host, f"gpu-{at}") for at, host in enumerate(hosts)]
    write_places(places, directory.places)
    gpus: list[dict[str, int]] = [{} for _ in range(stages)]
    for place in places:
        gpus[place.pipeline_rank][place.host] = gpus[place.pipeline_rank].get(place.host, 0) + 1
    return EmulatedJob(directory, plans, gpus, 0.0)


if __name__ == "__main__":
    sys.exit(main())
