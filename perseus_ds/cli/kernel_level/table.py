"""A kernel plan as text: classes, totals, what latency leaves."""

from __future__ import annotations

from perseus_ds.kernels import KernelPlan
from perseus_ds.kernels.summary import KernelTotal

_NAME = 44


def render(plan: KernelPlan, *, most: int = 20) -> str:
    """Lay a plan out in three tables."""
    parts = [_classes(plan, most), _totals(plan), _left(plan)]
    if plan.why_not_memory is not None:
        parts.append(f"core clocks only: {plan.why_not_memory}")
    if plan.left_out:
        parts.append(f"{len(plan.left_out)} classes stay at the default clocks:\n" + "\n".join(plan.left_out))
    return "\n\n".join(parts)


def _classes(plan: KernelPlan, most: int) -> str:
    lines = [
        f"{plan.launches} launches, {plan.iteration_s:.4g} s of kernels per iteration, {plan.pairs} pairs",
        "",
        f"{'kernel class':<{_NAME}} launches  time %  energy %   best pair   time   energy",
    ]
    for row in plan.classes[:most]:
        name = row.kernel if len(row.kernel) <= _NAME else row.kernel[: _NAME - 1] + "~"
        lines.append(
            f"{name:<{_NAME}} {row.launches:>8} {row.time_share_pct:>7.2f} {row.energy_share_pct:>9.2f}"
            f" {row.pair:>11} {row.time_pct:>+6.2f} {row.energy_pct:>+8.2f}"
        )
    if len(plan.classes) > most:
        lines.append(f"... and {len(plan.classes) - most} more")
    return "\n".join(lines)


def _totals(plan: KernelPlan) -> str:
    lines = [f"{'goal':<14}{'level':<13}{'scope':<8}{'time %':>9}{'energy %':>10}{'gap %':>9}"]
    lines += [
        f"{one.goal:<14}{one.level:<13}{one.scope:<8}{one.time_pct:>+9.2f}{one.energy_pct:>+10.2f}"
        f"{one.gap_pct:>9.4f}{_how(one)}"
        for one in plan.totals
    ]
    return "\n".join(lines)


def _how(total: KernelTotal) -> str:
    if total.confirmed:
        return f"  +- {total.energy_se_pct:.2f} by a second measurement"
    return "  by the measurement it was chosen from: too good"


def _left(plan: KernelPlan) -> str:
    lines = ["switching latency    time %  energy %   changes per iteration (no time lost)"]
    lines += [
        f"{1e3 * one.latency_s:>13.4g} ms {one.time_pct:>+10.2f}{one.energy_pct:>+10.2f}{one.changes:>10}"
        for one in plan.left
    ]
    return "\n".join(lines)
