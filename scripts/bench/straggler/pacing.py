"""Pace the replicas of a production trace to the longest of each iteration, printed as JSON; see README.md.

python scripts/bench/straggler/pacing.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from traces import DATA, LAG, Trace, gpt3_plans

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet
from perseus_ds.schedule import Instruction, Kind, dag_of, textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W
from perseus_ds.straggler.controller import ReplicaStatus
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.replica_plans import ReplicaPlans

FITTED = 2  # iterations that the durations' dependence on loads is fitted in, as a profile is; not counted
RANKS = 8
Floats = NDArray[np.float64]


class Work:
    """A trace, and what of it can be predicted from the loads: those are stage 0's forward durations.

    Shape: ``actual_s`` and ``predicted_s`` [iterations, replicas]: durations of iterations at full speed.
    """

    def __init__(self, trace: Trace, per_s: float, *, equal: bool) -> None:
        self._dag = dag_of(textbook("1f1b", stages=trace.stages, microbatches=trace.microbatches))
        forward = [Instruction(0, Kind.FORWARD, m) for m in range(trace.microbatches)]
        load = np.stack([trace.took_s[node] for node in forward], axis=-1)
        self._took_s = np.stack([trace.took_s[node] for node in self._dag.nodes])
        self.actual_s = per_s / float(np.median(trace.own_s[:FITTED])) * trace.own_s
        predicted_s = self._ends_s(self._from(np.ones_like(load) if equal else load))
        self.predicted_s = float(np.median(self.actual_s[:FITTED] / predicted_s[:FITTED])) * predicted_s
        ratio = self.actual_s / self.predicted_s
        self.error = float(np.std((ratio / ratio.mean(axis=0))[:FITTED]))

    def _from(self, load: Floats) -> Floats:
        """Durations of all nodes, each by its own regression on a load and its square."""
        found = np.empty((len(self._dag.nodes), *load.shape[:2]))
        for stage, kind in {(node.stage, node.kind) for node in self._dag.nodes}:
            alike = [n for n, node in enumerate(self._dag.nodes) if (node.stage, node.kind) == (stage, kind)]
            of = [self._dag.nodes[n].microbatch for n in alike]
            took_s = np.concatenate([self._took_s[n][:FITTED].ravel() for n in alike])
            fitted = np.concatenate([load[:FITTED, :, m].ravel() for m in of])
            terms = np.stack([np.ones_like(fitted), fitted, fitted**2], axis=1) / took_s[:, None]
            (base, linear, square), *_ = np.linalg.lstsq(terms, np.ones_like(took_s), rcond=None)
            for n, m in zip(alike, of, strict=True):
                found[n] = base + linear * load[..., m] + square * load[..., m] ** 2
        return found

    def _ends_s(self, took_s: Floats) -> Floats:
        """When iterations end on stage 0."""
        flat = took_s.reshape(len(took_s), -1)
        first = [n for n, node in enumerate(self._dag.nodes) if node.stage == 0]
        ends_s = self._dag.spans(flat, {})[1].reshape(took_s.shape)[first]
        latest_s: Floats = ends_s.max(axis=0)
        return latest_s


class Played:
    """Energy and time of all counted iterations, beside the highest clocks and the objective's plan."""

    def __init__(self, plans: PlanSet, index: FrontierIndex, replicas: int) -> None:
        self._energy_j, self._index = plans.effective_energy_j, index
        highest = [plans.options[i.stage, i.kind] for i in plans.computations()]
        self._highest_j = sum(float(o.energy_j[0] - plans.blocking_power_w * o.time_s[0]) for o in highest)
        self._waiting_w = BLOCKING_POWER_W * RANKS * replicas
        self.job_s: list[float] = []
        self.free_s: list[float] = []
        self.used_j = self.unplanned_j = 0.0

    def iterate(self, plans: ReplicaPlans, full_s: Floats, *, count: bool) -> Floats:
        """Run one iteration at the present plans; return own times.

        Shape: ``full_s`` [replicas], at full speed.
        """
        run = np.array(plans.plans)
        own_s: Floats = full_s * self._index.predicted_s(run) / self._index.objective_s
        if count:
            share = full_s / self._index.objective_s
            self.job_s.append(float(own_s.max()))
            self.free_s.append(float(full_s.max()))
            ran_j = np.interp(run, range(len(self._energy_j)), self._energy_j)
            self.used_j += float((share * ran_j).sum()) + self._waiting_w * own_s.max()
            self.unplanned_j += float(share.sum() * self._highest_j) + self._waiting_w * full_s.max()
        return own_s

    def result(self) -> dict[str, object]:
        """Figures."""
        slower = np.array(self.job_s) / np.array(self.free_s) - 1.0
        return {
            "saving_pct": round(100.0 * float(1.0 - self.used_j / self.unplanned_j), 2),
            "job_pct": round(100.0 * (sum(self.job_s) / sum(self.free_s) - 1.0), 3),
            "worst_iteration_pct": round(100.0 * float(slower.max()), 2),
        }


def pace(trace: Trace, plans: PlanSet, told: str, *, equal: bool = False) -> dict[str, object]:
    """Run a trace's counted iterations with the reported loads; ``equal``: all are the same."""
    index = FrontierIndex.of(plans, Objective())
    work, replicas = Work(trace, index.objective_s, equal=equal), trace.own_s.shape[1]
    known: Mapping[str, tuple[float | None, Floats]] = {
        "never": (None, work.predicted_s),
        "exactly": (1e-9, work.actual_s),
        "before": (work.error, work.predicted_s),
    }
    error, predicted_s = known[told]
    every = ReplicaPlans(index, replicas, reaction_delay=LAG, forecast_error=error)
    played = Played(plans, index, replicas)
    own_s: list[Floats] = []
    for n, full_s in enumerate(work.actual_s):
        every.will_run(n)
        every.pace(n, predicted_s[n])
        own_s.append(played.iterate(every, full_s, count=n >= FITTED))
        status = ReplicaStatus.unknown(replicas)
        if n >= LAG - 1:
            status = replace(status, own_s=own_s[n - LAG + 1])
        every.observe(n - LAG + 1, status)
    accused = () if every.decision is None else every.decision.stragglers
    return {
        **played.result(),
        "accused_at_the_end": [one.replica for one in accused],
    }


def main() -> int:
    """Pace SE in every way, and the other two as their loads allow."""
    found: dict[str, object] = {}
    for name in ("SE", "AR", "ST"):
        trace = Trace(DATA / "straggler_traces" / f"{name}.csv.gz")
        plans = gpt3_plans(trace.scatter_pct())
        found[name] = {
            told: pace(trace, plans, told, equal=name != "SE") for told in ("never", "exactly", "before")
        }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
