"""Pace the replicas of a production trace to the longest of each iteration, printed as JSON; see README.md.

python scripts/bench/straggler/pacing.py [--replicas 2048]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import thread_time_ns

import numpy as np
from numpy.typing import NDArray
from traces import DATA, LAG, Trace, gpt3_plans

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet
from perseus_ds.schedule import Dag, Instruction, Kind, dag_of, textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W
from perseus_ds.straggler import FrontierIndex, Outlook, ProgressMarks, ReplicaPlans, ReplicaStatus

FITTED = 2  # iterations that the durations' dependence on loads is fitted in, as a profile is; not counted
RANKS = 8
FROM_THE_FIRST = "exact from the first mark on"
Floats = NDArray[np.float64]


class Work:
    """A trace, and what of it can be predicted from the loads: those are stage 0's forward durations.

    Shape: ``actual_s`` and ``predicted_s`` [iterations, replicas, computations]: ends of stage 0's
    computations after an iteration's begin, at full speed.
    """

    def __init__(self, trace: Trace, per_s: float, *, equal: bool) -> None:
        self._dag: Dag = dag_of(textbook("1f1b", stages=trace.stages, microbatches=trace.microbatches))
        self._first = [n for n, node in enumerate(self._dag.nodes) if node.stage == 0]
        forward = [Instruction(0, Kind.FORWARD, m) for m in range(trace.microbatches)]
        self._load = np.stack([trace.took_s[node] for node in forward], axis=-1)
        if equal:
            self._load = np.ones_like(self._load)
        took_s = np.stack([trace.took_s[node] for node in self._dag.nodes])
        ends_s = self._ends_s(took_s)
        scale = per_s / float(np.median(trace.own_s[:FITTED]))
        self.actual_s = scale * ends_s * (trace.own_s / ends_s[..., -1])[..., None]
        self._took_s = took_s
        predicted_s = self._ends_s(self._from(self._load))
        self._bias = float(np.median(self.actual_s[:FITTED, :, -1] / predicted_s[:FITTED, :, -1]))
        self.predicted_s = self._bias * predicted_s
        order = sorted(range(len(self._first)), key=lambda n: float(predicted_s[0, 0, n]))
        self._order = [self._dag.nodes[self._first[n]] for n in order]
        self.marks = ProgressMarks.of(
            np.median(self.predicted_s, axis=(0, 1)).tolist(), float(np.median(self.predicted_s[..., -1]))
        )

    def as_computed_s(self, mark: int) -> Floats:
        """The same prediction when loads of microbatches that have not begun are the usual one."""
        begun = self._order[: self.marks.after[mark] + 2]
        usual = np.full_like(self._load, self._load[:FITTED].mean())
        for node in begun:
            if node.kind is Kind.FORWARD and self.marks.after[mark] >= 0:
                usual[..., node.microbatch] = self._load[..., node.microbatch]
        return self._bias * self._ends_s(self._from(usual))

    def _from(self, load: Floats) -> Floats:
        """Durations of all nodes, each by its own regression on a load and its square."""
        found = np.empty((len(self._dag.nodes), *load.shape[:2]))
        for stage, kind in {(node.stage, node.kind) for node in self._dag.nodes}:
            alike = [n for n, node in enumerate(self._dag.nodes) if (node.stage, node.kind) == (stage, kind)]
            of = [self._dag.nodes[n].microbatch for n in alike]
            took_s = np.concatenate([self._took_s[n][:FITTED].ravel() for n in alike])
            fitted = np.concatenate([self._load[:FITTED, :, m].ravel() for m in of])
            terms = np.stack([np.ones_like(fitted), fitted, fitted**2], axis=1) / took_s[:, None]
            (base, linear, square), *_ = np.linalg.lstsq(terms, np.ones_like(took_s), rcond=None)
            for n, m in zip(alike, of, strict=True):
                found[n] = base + linear * load[..., m] + square * load[..., m] ** 2
        return found

    def _ends_s(self, took_s: Floats) -> Floats:
        """When stage 0's computations end, in running order."""
        flat = took_s.reshape(len(took_s), -1)
        ends_s = (self._dag.starts_of_many(flat, {}) + flat).reshape(took_s.shape)[self._first]
        return np.sort(np.moveaxis(ends_s, 0, -1), axis=-1)


class Telling:
    """What replicas report at each mark."""

    def __init__(self, work: Work, predicted_s: Sequence[Floats]) -> None:
        self._left_s = [
            ends_s[..., -1] - (ends_s[..., after] if after >= 0 else 0.0)
            for ends_s, after in zip(predicted_s, work.marks.after, strict=True)
        ]
        actual_s = [
            work.actual_s[..., -1] - (work.actual_s[..., after] if after >= 0 else 0.0)
            for after in work.marks.after
        ]
        ratios = [actual / left for actual, left in zip(actual_s, self._left_s, strict=True)]
        self._error = [float(np.std((ratio / ratio.mean(axis=0))[:FITTED])) for ratio in ratios]

    def outlook(self, n: int, mark: int, elapsed_s: Floats) -> Outlook:
        """All replicas at one mark of one iteration."""
        replicas = len(elapsed_s)
        return Outlook(
            elapsed_s,
            self._left_s[mark][n],
            np.full(replicas, self._error[mark]),
            np.ones(replicas, dtype=np.bool_),
        )


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

    def iterate(
        self, plans: ReplicaPlans, n: int, work: Work, telling: Telling | None, *, count: bool
    ) -> Floats:
        """Run one iteration; return own times.

        A replica changes its plan between two computations of its first stage, once all have reported.
        """
        full_s = np.diff(work.actual_s[n], axis=1, prepend=0.0)
        done = np.zeros(full_s.shape[1] + 1)
        elapsed_s = np.zeros((len(full_s), len(done)))
        answers: list[tuple[float, NDArray[np.int64]]] = [(-1.0, np.array(plans.plans))]
        run = np.empty(full_s.shape, dtype=np.int64)
        at = 0
        marks = [] if telling is None else list(enumerate(work.marks.after))
        for mark, after in [*marks, (-1, full_s.shape[1] - 1)]:
            for c in range(at, after + 1):
                run[:, c] = answers[0][1]
                for when_s, chosen in answers[1:]:
                    run[:, c] = np.where(elapsed_s[:, c] >= when_s, chosen, run[:, c])
                slower = self._index.expected_s[run[:, c]] / self._index.objective_s
                elapsed_s[:, c + 1] = elapsed_s[:, c] + full_s[:, c] * slower
            at = after + 1
            if telling is not None and mark >= 0:
                plans.told(n, telling.outlook(n, mark, elapsed_s[:, at]))
                answers.append((float(elapsed_s[:, at].max()), np.array(plans.plans)))
        own_s = elapsed_s[:, -1]
        if count:
            share = full_s / self._index.objective_s
            longest_s = float(full_s.sum(axis=1).max())
            self.job_s.append(float(own_s.max()))
            self.free_s.append(longest_s)
            self.used_j += float((share * self._energy_j[run]).sum()) + self._waiting_w * own_s.max()
            self.unplanned_j += float(share.sum() * self._highest_j) + self._waiting_w * longest_s
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
    if told in {"before", "exactly"}:
        work.marks = work.marks.first()
    telling = None
    if told != "never":
        known: dict[str, Callable[[int], Floats]] = {
            "as computed": work.as_computed_s,
            "exactly": lambda _: work.actual_s * (1.0 + 1e-9),
            FROM_THE_FIRST: lambda mark: work.actual_s * (1.0 + 1e-9) if mark else work.predicted_s,
        }
        says = known.get(told, lambda _: work.predicted_s)
        telling = Telling(work, [says(mark) for mark in range(len(work.marks.after))])
    every = ReplicaPlans([index] * replicas, exposed=LAG, marks=work.marks)
    played = Played(plans, index, replicas)
    own_s: list[Floats] = []
    for n in range(len(trace.own_s)):
        every.will_run(n)
        own_s.append(played.iterate(every, n, work, telling, count=n >= FITTED))
        status = ReplicaStatus.unknown(replicas)
        if n >= LAG - 1:
            status = replace(status, own_s=own_s[n - LAG + 1])
        every.observe(n - LAG + 1, status)
    accused = () if every.decision is None else every.decision.stragglers
    return {
        **played.result(),
        "accused_at_the_end": [one.replica for one in accused],
    }


def choosing_us(replicas: int, index: FrontierIndex, rounds: int = 50) -> dict[str, float]:
    """Thread CPU time per iteration of all answers to four marks, and of the observation after it."""
    random = np.random.default_rng(0)
    marks = ProgressMarks((-1, 3, 7, 11), (0.0, 0.25, 0.5, 0.75), (0.05, 0.3, 0.55, 0.8))
    plans = ReplicaPlans([index] * replicas, marks=marks)
    told_us, observed_us = [], []
    for n in range(rounds):
        load = np.exp(0.12 * random.standard_normal(replicas))
        began = thread_time_ns()
        plans.will_run(n)
        spent = thread_time_ns() - began
        elapsed_s = np.zeros(replicas)
        for left in (1.0, 0.75, 0.5, 0.25):
            left_s = index.objective_s * load * left
            outlook = Outlook(elapsed_s, left_s, np.full(replicas, 0.01), np.ones(replicas, np.bool_))
            began = thread_time_ns()
            plans.told(n, outlook)
            spent += thread_time_ns() - began
            elapsed_s = elapsed_s + 0.25 * load * index.expected_s[plans.plans]
        told_us.append(spent / 1e3)
        own_s = elapsed_s * (1.0 + 0.01 * random.standard_normal(replicas))
        status = ReplicaStatus(own_s, np.zeros(replicas, np.bool_), np.ones(replicas))
        began = thread_time_ns()
        plans.observe(n, status)
        observed_us.append((thread_time_ns() - began) / 1e3)
    return {
        "told_us": round(statistics.median(told_us), 1),
        "observed_us": round(statistics.median(observed_us), 1),
    }


def main() -> int:
    """Pace SE in every way, and the other two as their loads allow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2048, help="for the time that choosing takes")
    options = parser.parse_args()
    found: dict[str, object] = {}
    for name, ways in (
        ("SE", ("never", "exactly", "before", "before, corrected within", FROM_THE_FIRST, "as computed")),
        ("AR", ("never", "before", "before, corrected within")),
        ("ST", ("never", "before", "before, corrected within")),
    ):
        trace = Trace(DATA / "straggler_traces" / f"{name}.csv.gz")
        plans = gpt3_plans(trace.scatter_pct())
        found[name] = {told: pace(trace, plans, told, equal=name != "SE") for told in ways}
    found["choosing"] = {
        options.replicas: choosing_us(options.replicas, FrontierIndex.of(gpt3_plans(1.0), Objective()))
    }
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
