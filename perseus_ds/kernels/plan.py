"""The plan of the kernel level: every total, every class, and the saving that latency leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.kernels.choose import (
    EDP,
    ChosenPairs,
    Goal,
    LaunchCosts,
    Level,
    Scope,
    ValidatedSaving,
    choose,
    cost_table,
    launch_costs,
    second_costs,
    smoothed,
    validate_on_second_sample,
)
from perseus_ds.kernels.profile import KernelProfile
from perseus_ds.kernels.segment import ChangeCost, Segments, segments_within
from perseus_ds.kernels.segment import Sequence as Launches
from perseus_ds.kernels.trace import KernelTrace
from perseus_ds.run_directory.paths import read_record, write_record

LATENCIES_S = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.010, 0.020, 0.040)
MOST_LAUNCHES = 20_000
PLAN = "perseus-kernel-plan"


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
    costs = launch_costs(smoothed(profile), trace)
    table = cost_table(costs, trace)
    best = choose(table, Goal())
    choices = [*product((Goal(), Goal(tau), EDP), (Level.PASS, Level.INSTRUCTION, Level.KERNEL), Scope)]
    totals, savings = [], []
    for done, (goal, level, scope) in enumerate(choices):
        totals.append(_total(costs, profile, trace, level=level, goal=goal, scope=scope))
        if progress is not None:
            progress((done + 1) / (len(choices) + len(latencies_s)))
    for done, latency_s in enumerate(latencies_s):
        savings.append(_saving_at_latency(costs, trace, latency_s))
        if progress is not None:
            progress((len(choices) + done + 1) / (len(choices) + len(latencies_s)))
    return KernelPlan(
        classes=_rows(best, trace),
        totals=tuple(totals),
        left=tuple(savings),
        left_out=tuple(
            f"{kernel}: {profile.left_out.get(kernel, 'not measured')}" for kernel in costs.left_out
        ),
        why_not_memory=profile.why_not_memory,
        launches=trace.launches,
        iteration_s=table.default_s,
        pairs=len(costs.pairs),
    )


def _total(
    costs: LaunchCosts, profile: KernelProfile, trace: KernelTrace, *, level: Level, goal: Goal, scope: Scope
) -> KernelTotal:
    chosen = choose(cost_table(costs, trace, level), goal, scope)
    second, spread = (cost_table(one, trace, level) for one in second_costs(profile, trace))
    validated = validate_on_second_sample(chosen, second, spread)
    saving = validated or ValidatedSaving(chosen.time_pct, chosen.energy_pct, 0.0, 0.0)
    return KernelTotal(
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


def _rows(best: ChosenPairs, trace: KernelTrace) -> tuple[ClassRow, ...]:
    table = best.table
    launches = {
        str(kernel): sum(one.times * one.counts[place] for one in trace.sequences)
        for place, kernel in enumerate(trace.classes)
    }
    rows = [
        ClassRow(
            name,
            launches[name],
            100.0 * float(table.time_s[row, 0]) / table.default_s,
            100.0 * float(table.energy_j[row, 0]) / table.default_j,
            str(best.pairs[row]),
            100.0 * float(table.time_s[row, option] / table.time_s[row, 0] - 1.0),
            100.0 * float(table.energy_j[row, option] / table.energy_j[row, 0] - 1.0),
        )
        for row, (name, option) in enumerate(zip(table.rows, best.option.tolist(), strict=True))
    ]
    return tuple(sorted(rows, key=lambda row: -row.energy_share_pct))


def _saving_at_latency(costs: LaunchCosts, trace: KernelTrace, latency_s: float) -> SavingAtLatency:
    change = ChangeCost(ClockChange.of_latency(latency_s))
    stages = [
        stage_launches(costs, trace, stage, change) for stage in sorted({s.stage for s in trace.sequences})
    ]
    cut: list[Segments] = [segments_within(one, one.default_s) for one in stages]
    default_s, default_j = sum(one.default_s for one in stages), sum(one.default_j for one in stages)
    return SavingAtLatency(
        latency_s,
        100.0 * (sum(one.time_s for one in cut) / default_s - 1.0),
        100.0 * (sum(one.energy_j for one in cut) / default_j - 1.0),
        sum(one.changes for one in cut),
    )


def stage_launches(costs: LaunchCosts, trace: KernelTrace, stage: int, change: ChangeCost) -> Launches:
    """A stage's launches in a steady state: each of its instructions in turn, as often as they run.

    An iteration of more than `MOST_LAUNCHES` is cut short to whole rounds.
    """
    sequences = [one for one in trace.sequences if one.stage == stage]
    once = np.concatenate([np.array(one.kernels) for one in sequences])
    rounds = max(1, min(max(one.times for one in sequences), MOST_LAUNCHES // len(once)))
    return Launches(np.tile(once, rounds), costs, change)


def write_kernel_plan(plan: KernelPlan, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_record(path, PLAN, KernelPlan, plan)


def read_kernel_plan(path: Path) -> KernelPlan:
    """Read what `perseus-ds kernels plan -o` wrote.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return read_record(path, PLAN, KernelPlan, remedy="plan again")
