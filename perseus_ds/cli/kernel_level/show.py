"""Show what `kernels plan -o` wrote: as table, as JSON, or as a page with figures (--picture FILE.html)."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib import import_module
from json import dumps
from pathlib import Path

from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.cli.quantity import count, refuse_idle
from perseus_ds.cli.terminal import grid, sentences
from perseus_ds.kernels import KernelPlan, read_kernel_plan
from perseus_ds.kernels.summary import KernelTotal

_NAME, _CLASSES = 28, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds kernels show``."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="what `kernels plan -o` wrote")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--classes", type=count, metavar="N", help=f"how many (default {_CLASSES})")
    parser.add_argument("--picture", type=Path, metavar="PAGE", help="draw it into this HTML page")


def run(options: argparse.Namespace) -> int:
    """Print, and draw where asked."""
    if options.json:
        refuse_idle("--json prints every class", classes=options.classes)
    plan = read_kernel_plan(options.plan)
    say(dumps(asdict(plan), indent=1) if options.json else render(plan, most=options.classes or _CLASSES))
    if options.picture is not None:
        write_kernels = import_module("perseus_ds.report.page").write_kernels
        subtitle = f"{plan.launches} launches, {plan.iteration_s:.3g} s, {plan.pairs} pairs of clocks"
        write_kernels(plan, options.picture, title="A pair of clocks for every kernel", subtitle=subtitle)
        remark(f"drew {options.picture}")
    return DONE


def render(plan: KernelPlan, *, most: int = _CLASSES) -> str:
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
