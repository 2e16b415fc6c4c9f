"""A kernel plan as text: classes, totals, what latency leaves."""

from __future__ import annotations

from perseus_ds.cli.terminal import grid, sentences
from perseus_ds.kernels import KernelPlan
from perseus_ds.kernels.summary import KernelTotal

_NAME = 28


def render(plan: KernelPlan, *, most: int = 20) -> str:
    """Lay a plan out in three tables."""
    parts = [_classes(plan, most), _totals(plan), _left(plan)]
    if plan.why_not_memory is not None:
        parts.append(f"core clocks only: {plan.why_not_memory}")
    if plan.left_out:
        parts.append(f"{len(plan.left_out)} classes stay at the default clocks:\n" + "\n".join(plan.left_out))
    return "\n\n".join(parts)


def _classes(plan: KernelPlan, most: int) -> str:
    rows = [
        [
            row.kernel if len(row.kernel) <= _NAME else f"{row.kernel[: _NAME - 2]}..",
            str(row.launches),
            f"{row.time_share_pct:.2f}",
            f"{row.energy_share_pct:.2f}",
            row.pair,
            f"{row.time_pct:+.2f}",
            f"{row.energy_pct:+.2f}",
        ]
        for row in plan.classes[:most]
    ]
    head = f"{plan.launches} launches, {plan.iteration_s:.4g} s of kernels per iteration, {plan.pairs} pairs"
    left = [f"... and {len(plan.classes) - most} more"] if len(plan.classes) > most else []
    headings = ("kernel class", "launches", "time %", "energy %", "best pair", "time", "energy")
    return "\n".join([head, "", grid(headings, rows), *left])


def _totals(plan: KernelPlan) -> str:
    rows = [
        [
            *(one.goal, one.level, one.scope, f"{one.time_pct:+.2f}", f"{one.energy_pct:+.2f}"),
            *(f"{one.gap_pct:.4f}", _how(one)),
        ]
        for one in plan.totals
    ]
    note = "+-: by a second measurement; chosen: by the measurement it was chosen from, too good"
    headings = ("goal", "level", "scope", "time %", "energy %", "gap %", "error")
    return f"{grid(headings, rows, texts=3)}\n{sentences(note)}"


def _how(total: KernelTotal) -> str:
    return f"+- {total.energy_se_pct:.2f}" if total.confirmed else "chosen"


def _left(plan: KernelPlan) -> str:
    rows = [
        [f"{1e3 * one.latency_s:.4g} ms", f"{one.time_pct:+.2f}", f"{one.energy_pct:+.2f}", str(one.changes)]
        for one in plan.left
    ]
    headings = ("switching latency", "time %", "energy %", "changes per iteration")
    return f"{grid(headings, rows)}\n(no time lost)"
