"""A plan as text: clocks in MHz, a row per stage and kind, by microbatch."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import groupby

from perseus_ds.cli.terminal import COLUMNS, bold
from perseus_ds.plan import FrequencyPlan, Options, worth
from perseus_ds.report.read import signed
from perseus_ds.schedule import Instruction, Kind

_NAME = 11  # characters of "F stage 12 "


def headline(plan: FrequencyPlan, name: str) -> str:
    """State which plan it is and what it is worth."""
    baseline, gap_pct = plan.of.baseline, float(plan.of.gap_pct[plan.index])
    valued = worth(plan.slowdown_pct, plan.saving_pct, gap_pct, plan.saving_within_pct)
    return (
        f"{bold(f'{name}: {valued}')}\n"
        f"{plan.iteration_time_s:.6g} s and {plan.energy_j:.6g} J per pipeline;"
        f" all clocks at maximum: {baseline.iteration_time_s:.6g} s, {baseline.energy_j:.6g} J"
    )


def waiting(plan: FrequencyPlan, straggler_s: float) -> str:
    """State what the plan is worth while others are waited for: both sides over the straggler's time.

    Source: arXiv 2312.06902, equation 3.
    """
    plans, baseline = plan.of, plan.of.baseline
    until_s = max(straggler_s, baseline.iteration_time_s, plan.iteration_time_s)
    planned_j = float(plans.effective_energy_j[plan.index]) + plans.blocking_total_w * until_s
    waited_w = baseline.blocking_power_w * plans.schedule.ranks
    all_j = baseline.energy_j + waited_w * (until_s - baseline.iteration_time_s)
    saved_pct = signed(100.0 * (1.0 - planned_j / all_j), decimals=2)
    return (
        f"beside a straggler of {straggler_s:.6g} s: {planned_j:.6g} J per pipeline with the wait"
        f" ({saved_pct} % saved of {all_j:.6g} J)"
    )


def clock_grid(plan: FrequencyPlan) -> str:
    """Draw the clocks: a column per microbatch where all fit, else neighbours at one clock as runs."""
    clocks = _clocks_mhz(plan)
    kinds = [kind for kind in Kind if any(i.kind is kind for i in clocks)]
    rows = [(kind, stage) for kind in kinds for stage in range(plan.of.schedule.stages)]
    microbatches = range(plan.of.schedule.microbatches)
    cell = 1 + max(4, *map(len, clocks.values()))
    if _NAME + cell * len(microbatches) > COLUMNS:
        return "\n".join(["MHz by microbatch", *(_runs(clocks, *row, microbatches) for row in rows)])
    head = "microbatch" + "".join(f"{m:>{cell}}" for m in microbatches)
    return "\n".join([head, *(_columns(clocks, *row, microbatches, cell) for row in rows)])


def _columns(
    clocks: Mapping[Instruction, str], kind: Kind, stage: int, microbatches: range, cell: int
) -> str:
    cells = [clocks.get(Instruction(stage, kind, m)) or "." for m in microbatches]
    return _name(kind, stage) + "".join(f"{clock:>{cell}}" for clock in cells)


def _runs(clocks: Mapping[Instruction, str], kind: Kind, stage: int, microbatches: range) -> str:
    """One stage's clocks: ``2-7:885`` is microbatches 2 to 7 at 885 MHz; long rows go on in the next line."""
    words = []
    for clock, run in groupby(microbatches, lambda m: clocks.get(Instruction(stage, kind, m))):
        found = list(run)
        if clock is not None:
            words.append(f"{_extent(found)}:{clock}")
    text = textwrap.fill(" ".join(words), COLUMNS - _NAME, break_on_hyphens=False, break_long_words=False)
    return _name(kind, stage) + text.replace("\n", "\n" + " " * _NAME)


def _extent(found: list[int]) -> str:
    return str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _clocks_mhz(plan: FrequencyPlan) -> dict[Instruction, str]:
    """One clock for a computation, or two joined in the order of time; of a timeline the mean."""
    options = plan.of.options
    return {
        i: "-".join(_clock_text(options[i.stage, i.kind], option) for option, _ in portions)
        for i, portions in plan.portions().items()
    }


def _clock_text(options: Options, option: int) -> str:
    mark = "~" if len(options.segments(option)) > 1 else ""
    memories = {segment.memory_mhz for segment in options.segments(option)} - {None}
    return f"{mark}{options.mean_mhz(option):.0f}{'m' if memories else ''}"


def _name(kind: Kind, stage: int) -> str:
    return f"{kind.value} stage {stage}".ljust(_NAME)
