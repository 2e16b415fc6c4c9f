"""A plan as text: clocks in MHz, a row per stage and kind, a column per microbatch."""

from __future__ import annotations

from perseus_ds.plan import FrequencyPlan, certified
from perseus_ds.report.number import signed
from perseus_ds.schedule import Instruction, Kind


def headline(plan: FrequencyPlan) -> str:
    """Say which plan it is and what it is worth."""
    plans, slower = plan.of, signed(plan.slowdown_pct, decimals=2)
    return (
        f"plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.6g} s ({slower} %),"
        f" {plan.energy_j:.6g} J per pipeline (saves {plan.saving_pct:.2f} %),"
        f"\n{certified(float(plans.gap_pct[plan.index]))}\n"
        f"all clocks at maximum: {plans.baseline.iteration_time_s:.6g} s, {plans.baseline.energy_j:.6g} J"
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
    """One clock for a computation, or two joined in the order of time."""
    options = plan.of.options
    return {
        i: "-".join(str(options[i.stage, i.kind].clock_mhz[option]) for option, _ in portions)
        for i, portions in plan.portions().items()
    }


def _row(kind: Kind, stage: int, clocks_mhz: list[str | None], width: int) -> str:
    cells = "".join(f"{clock or '.':>{width}}" for clock in clocks_mhz)
    return f"{kind.value:<2}stage {stage:<2}" + cells
