"""The plan of the kernel level: every total, every class, and the saving that latency leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from perseus_ds.kernels.choose import (
    EDP,
    ChosenPairs,
    CostTable,
    Goal,
    Level,
    Scope,
    choose,
    cost_table,
    launch_costs,
    predict,
    second_costs,
    smooth,
    validate_on_second_sample,
)
from perseus_ds.kernels.profile import KernelProfile
from perseus_ds.kernels.segment import Launches, segments_within
from perseus_ds.kernels.trace import KernelTrace
from perseus_ds.run_directory.paths import RecordFormat

LATENCIES_S = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.010, 0.020, 0.040)
MOST_LAUNCHES = 20_000


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class: its share of the iteration, and the pair that wastes nothing (strict, global)."""

    kernel: str
    launches: int
    time_share_pct: float
    energy_share_pct: float
    pair: str
    time_pct: float
    energy_pct: float


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """A choice for the whole iteration: predicted by the second measurement, where there is one."""

    level: str
    goal: str
    scope: str
    time_pct: float
    energy_pct: float
    gap_pct: float
    confirmed: bool
    time_se_pct: float = 0.0
    energy_se_pct: float = 0.0


@dataclass(frozen=True, slots=True)
class SavingAtLatency:
    """Saving at a switching latency with no time lost, added up over the stages."""

    latency_s: float
    time_pct: float
    energy_pct: float
    changes: int


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Result of `perseus-ds kernels plan`, as it stands in its file."""

    classes: tuple[ClassRow, ...]
    totals: tuple[KernelTotal, ...]
    left: tuple[SavingAtLatency, ...]
    left_out: tuple[str, ...]
    why_not_memory: str | None
    launches: int
    iteration_s: float
    pairs: int


def kernel_plan(
    profile: KernelProfile,
    trace: KernelTrace,
    *,
    tau: float = 0.1,
    latencies_s: Sequence[float] = LATENCIES_S,
    progress: Callable[[float], None] | None = None,
) -> KernelPlan:
    """Choose for every level, goal and scope, and cut the iteration for every latency.

    The choice is made on smoothed measurements; what it brings is reported by the second measurement.

    Raises:
        ProfileError: profile and trace do not belong together.
    """
    costs, second = launch_costs(smooth(profile), trace), second_costs(profile, trace)
    table = cost_table(costs, trace)
    reasons = {one.kernel: one.reason for one in profile.left_out}
    measured = {one.kernel for one in profile.measured}
    goals = [*product((Goal(), Goal(tau), EDP), (Level.PASS, Level.INSTRUCTION, Level.KERNEL), Scope)]
    totals: list[KernelTotal] = []
    left: list[SavingAtLatency] = []

    def report() -> None:
        if progress is not None:
            progress((len(totals) + len(left)) / (len(goals) + len(latencies_s)))

    for goal, level, scope in goals:
        chosen = choose(cost_table(costs, trace, level), goal, scope)
        validated = validate_on_second_sample(chosen, *(cost_table(one, trace, level) for one in second))
        saving = validated or predict(chosen)
        totals.append(
            KernelTotal(
                level.value,
                str(goal),
                scope.value,
                saving.time_pct,
                saving.energy_pct,
                gap_pct=100.0 * (1.0 - chosen.bound_j / chosen.energy_j),
                confirmed=validated is not None,
                time_se_pct=saving.time_se_pct,
                energy_se_pct=saving.energy_se_pct,
            )
        )
        report()
    for latency_s in latencies_s:
        left.append(_saving_at_latency(costs, trace, latency_s))
        report()
    return KernelPlan(
        classes=_rows(choose(table, Goal()), trace),
        totals=tuple(totals),
        left=tuple(left),
        left_out=tuple(
            f"{kernel}: {reasons.get(kernel, 'not measured')}"
            for kernel in trace.classes
            if kernel not in measured
        ),
        why_not_memory=profile.why_not_memory,
        launches=trace.launches,
        iteration_s=float(table.time_s[:, 0].sum()),
        pairs=len(costs.pairs),
    )


def _rows(best: ChosenPairs, trace: KernelTrace) -> tuple[ClassRow, ...]:
    table, rows = best.table, np.arange(len(best.option))
    launches = {
        str(kernel): sum(one.times * one.counts[place] for one in trace.sequences)
        for place, kernel in enumerate(trace.classes)
    }
    (time_share, time_pct), (energy_share, energy_pct) = (
        (
            100.0 * values[:, 0] / values[:, 0].sum(),
            100.0 * (values[rows, best.option] / values[:, 0] - 1.0),
        )
        for values in (table.time_s, table.energy_j)
    )
    found = [
        ClassRow(
            name,
            launches[name],
            float(time_share[row]),
            float(energy_share[row]),
            str(best.pairs[row]),
            float(time_pct[row]),
            float(energy_pct[row]),
        )
        for row, name in enumerate(table.rows)
    ]
    return tuple(sorted(found, key=lambda row: -row.energy_share_pct))


def _saving_at_latency(costs: CostTable, trace: KernelTrace, latency_s: float) -> SavingAtLatency:
    stages = [
        _of_stage(costs, trace, stage, latency_s) for stage in sorted({s.stage for s in trace.sequences})
    ]
    default = [one.at_default for one in stages]
    cut = [segments_within(one, own.time_s) for one, own in zip(stages, default, strict=True)]
    return SavingAtLatency(
        latency_s,
        100.0 * (sum(one.time_s for one in cut) / sum(one.time_s for one in default) - 1.0),
        100.0 * (sum(one.energy_j for one in cut) / sum(one.energy_j for one in default) - 1.0),
        sum(one.changes for one in cut),
    )


def _of_stage(costs: CostTable, trace: KernelTrace, stage: int, latency_s: float) -> Launches:
    """A stage's launches in a steady state: each of its instructions in turn, as often as they run.

    An iteration of more than `MOST_LAUNCHES` is cut short to whole rounds.
    """
    sequences = [one for one in trace.sequences if one.stage == stage]
    once = np.concatenate([np.array(one.kernels) for one in sequences])
    rounds = max(1, min(max(one.times for one in sequences), MOST_LAUNCHES // len(once)))
    return Launches(np.tile(once, rounds), costs, latency_s)


KERNEL_PLANS = RecordFormat("perseus-kernel-plan", KernelPlan, "plan again")
"""Files of kernel plans, as `perseus-ds kernels plan -o` writes them."""
