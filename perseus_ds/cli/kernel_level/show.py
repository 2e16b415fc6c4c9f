"""Show what `kernels plan -o` wrote: as table, as JSON, or as a page with figures (--picture FILE.html)."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from importlib import import_module
from json import dumps
from pathlib import Path

from perseus_ds.cli.kernel_level.table import render
from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.cli.quantity import count
from perseus_ds.kernels import read_kernel_plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds kernels show``."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="what `kernels plan -o` wrote")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--classes", type=count, default=20, help="how many (default %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="PAGE", help="draw it into this HTML page")


def run(options: argparse.Namespace) -> int:
    """Print, and draw where asked."""
    plan = read_kernel_plan(options.plan)
    say(dumps(asdict(plan), indent=1) if options.json else render(plan, most=options.classes))
    if options.picture is not None:
        write_kernels = import_module("perseus_ds.report.page.kernels").write_kernels
        subtitle = f"{plan.launches} launches, {plan.iteration_s:.3g} s, {plan.pairs} pairs of clocks"
        write_kernels(plan, options.picture, title="A pair of clocks for every kernel", subtitle=subtitle)
        remark(f"drew {options.picture}")
    return DONE
