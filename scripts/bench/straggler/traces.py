"""Replay three production traces through the real answer to stragglers, printed as JSON; see README.md.

python scripts/bench/straggler/traces.py [--silent]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, build
from perseus_ds.profile import Point, Profile, read_profile
from perseus_ds.schedule import Instruction, Kind, textbook
from perseus_ds.simulation.emulator import Answers
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W
from perseus_ds.straggler.controller import ReplicaStatus
from perseus_ds.straggler.frontier_index import FrontierIndex

DATA = Path(os.environ.get("PERSEUS_SHARED_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
KINDS = {"forward-compute": Kind.FORWARD, "backward-compute": Kind.BACKWARD}
DECILES_APART = 2.5631  # in standard deviations: a profile's scatter is that of the middle four fifths
LAG = 2
Floats = NDArray[np.float64]


class Trace:
    """One job as recorded: own times, and the profile that it would have measured.

    Shape: ``own_s`` and each of ``took_s`` [steps, replicas].
    """

    def __init__(self, path: Path) -> None:
        self._first_s: dict[tuple[int, int], float] = {}
        self._last_s: dict[tuple[int, int], float] = {}
        self._took_s: dict[tuple[int, int, Kind], list[float]] = defaultdict(list)
        self._of: dict[tuple[int, int, Instruction], float] = {}
        self.microbatches = self.stages = 0
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                if row["operation"] in KINDS:
                    self._take(row)
        steps, replicas = (sorted({key[part] for key in self._first_s}) for part in (0, 1))
        self.own_s: Floats = np.array(
            [[self._last_s[n, r] - self._first_s[n, r] for r in replicas] for n in steps]
        )
        self.took_s: dict[Instruction, Floats] = {
            node: np.array([[self._of[n, r, node] for r in replicas] for n in steps])
            for node in {node for _, _, node in self._of}
        }

    def _take(self, row: dict[str, str]) -> None:
        step, replica, stage, microbatch = (
            int(row[name]) for name in ("step", "dp_rank", "stage", "microbatch")
        )
        start_s, took_s = float(row["start_s"]), float(row["duration_s"])
        self._took_s[replica, stage, KINDS[row["operation"]]].append(took_s)
        self._of[step, replica, Instruction(stage, KINDS[row["operation"]], microbatch)] = took_s
        self.microbatches = max(self.microbatches, microbatch + 1)
        self.stages = max(self.stages, stage + 1)
        if stage == 0:
            key = step, replica
            self._first_s[key] = min(self._first_s.get(key, start_s), start_s)
            self._last_s[key] = max(self._last_s.get(key, 0.0), start_s + took_s)

    def profile(self) -> Profile:
        """One clock; scatter within each replica, averaged over replicas, as a job pools it."""
        pooled: dict[tuple[int, Kind], list[tuple[float, float]]] = defaultdict(list)
        for (_, stage, kind), took_s in self._took_s.items():
            low_s, high_s = np.quantile(took_s, [0.1, 0.9])
            pooled[stage, kind].append((float(np.median(took_s)), float(high_s - low_s) / DECILES_APART))
        points = {
            key: (
                Point(
                    1410,
                    float(np.median([mean_s for mean_s, _ in own])),
                    1.0,
                    time_sd_s=float(np.sqrt(np.mean([sd_s**2 for _, sd_s in own]))),
                ),
            )
            for key, own in pooled.items()
        }
        return Profile(points, blocking_power_w=0.0)

    def scatter_pct(self) -> float | None:
        """What the plan of this job would predict."""
        profile = self.profile()
        schedule = textbook("1f1b", stages=profile.stages, microbatches=self.microbatches)
        return build(profile, schedule, blocking_power_w=0.0).scatter_pct


def gpt3_plans(scatter_pct: float | None) -> PlanSet:
    """GPT-3's frontier, for a job that varies so."""
    profile = read_profile(DATA / "gpt3-175b_a100-sxm_profile.csv")
    schedule = textbook("1f1b", stages=8, microbatches=12)
    plans = build(profile, schedule, blocking_power_w=BLOCKING_POWER_W)
    return replace(plans, scatter_pct=scatter_pct)


def replay(own_s: Floats, index: FrontierIndex) -> dict[str, object]:
    """Run every replica's plan as much slower as the trace's replica was, iteration by iteration."""
    pace = own_s / np.median(own_s)
    replicas = own_s.shape[1]
    answers = Answers(index, replicas)
    job_s, free_s, late_pct, answered = 0.0, 0.0, [], None
    for n, row in enumerate(pace):
        took_s = row * index.predicted_s(np.array(answers.replica_plans.plans))
        job_s, needed_s = job_s + took_s.max(), row.max() * index.objective_s
        free_s += needed_s
        answers.observe(ReplicaStatus(took_s, np.zeros(replicas, np.bool_), np.ones(replicas)))
        sync_time_s = answers.decisions[-1].sync_time_s
        if sync_time_s is not None:
            answered = n + 1 - LAG if answered is None else answered  # of n + 1, the last one is not known
            late_pct.append(100.0 * (sync_time_s / needed_s - 1.0))
    accused = {one.replica for decision in answers.decisions for one in decision.stragglers}
    return {
        "replicas": replicas,
        "iterations": len(own_s),
        "scatter_within_replicas_pct": round(100 * float((own_s.std(axis=0) / own_s.mean(axis=0)).mean()), 2),
        "answered_after_iterations": answered,
        "accused": sorted(accused),
        "job_pct": round(100.0 * (job_s / free_s - 1.0), 3),
        "sync_time_off_pct": {
            word: round(float(of(late_pct)), 2)
            for word, of in (("least", np.min), ("mean", np.mean), ("most", np.max))
            if late_pct
        },
    }


def main() -> int:
    """Replay all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--silent", action="store_true", help="with a profile that does not tell scatter")
    silent = parser.parse_args().silent
    found = {}
    for name in ("AR", "ST", "SE"):
        trace = Trace(DATA / "straggler_traces" / f"{name}.csv.gz")
        scatter_pct = None if silent else trace.scatter_pct()
        found[name] = {
            "scatter_by_the_profile_pct": None if scatter_pct is None else round(scatter_pct, 2),
            **replay(trace.own_s, FrontierIndex.of(gpt3_plans(scatter_pct), Objective())),
        }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
