"""A plan as text: clocks in MHz, a row per stage and kind, a column per microbatch."""

from __future__ import annotations

from perseus_ds.plan import FrequencyPlan, Options, certified
from perseus_ds.report.number import signed
from perseus_ds.schedule import Instruction, Kind


def headline(plan: FrequencyPlan, name: str) -> str:
    """Say which plan it is and what it is worth."""
    plans, slower = plan.of, signed(plan.slowdown_pct, decimals=2)
    return (
        f"{name}: {plan.iteration_time_s:.6g} s ({slower} %),"
        f" {plan.energy_j:.6g} J per pipeline (saves {plan.saving_pct:.2f} %),"
        f"\n{certified(float(plans.gap_pct[plan.index]))}\n"
        f"all clocks at maximum: {plans.baseline.iteration_time_s:.6g} s, {plans.baseline.energy_j:.6g} J"
    )


def waiting(plan: FrequencyPlan, straggler_s: float) -> str:
    """Say what the plan is worth while others are waited for: both sides over the straggler's time.

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


def clock_grid(plan: FrequencyPlan, *, width: int = 100) -> str:
    """Draw the clocks; long rows are folded into blocks of microbatches."""
    schedule, clocks = plan.of.schedule, _clocks_mhz(plan)
    cell = 1 + max(4, *map(len, clocks.values()))
    per_block = max(1, (width - len(_row(Kind.FORWARD, 0, [], cell))) // cell)
    blocks = []
    for first in range(0, schedule.microbatches, per_block):
        microbatches = range(first, min(first + per_block, schedule.microbatches))
        lines = ["microbatch" + "".join(f"{m:>{cell}}" for m in microbatches)]
        for kind in (kind for kind in Kind if any(i.kind is kind for i in clocks)):
            for stage in range(schedule.stages):
                cells = [clocks.get(Instruction(stage, kind, m)) for m in microbatches]
                lines.append(_row(kind, stage, cells, cell))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


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


def _row(kind: Kind, stage: int, clocks_mhz: list[str | None], width: int) -> str:
    cells = "".join(f"{clock or '.':>{width}}" for clock in clocks_mhz)
    return f"{kind.value:<2}stage {stage:<2}" + cells
