"""Check that a plan file is what it states.

Baseline, iteration times, energies, waits and the shape of the frontier are recomputed for every
plan from the orders, options and shares in the file. Four plans are checked once more: the fastest,
the one that loses no time, one in the middle and the slowest. Their longest path is found by
networkx, their bounds by a linear program. Nothing that made the file is used for that.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perseus_ds.cli.output import DONE, bar, print_result
from perseus_ds.config import Objective
from perseus_ds.errors import PerseusError, PlanError
from perseus_ds.plan import read_plans, select
from perseus_ds.plan.verify import verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds verify``."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="plan.json of a run directory")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Read, recompute, state what was checked."""
    from perseus_ds.plan.check import (  # noqa: PLC0415  # scipy: not for --help
        check_bounds_by_lp,
        check_times_by_networkx,
    )

    plans = read_plans(options.plan)
    some = sorted({0, select(plans, Objective()).index, len(plans) // 2, len(plans) - 1})
    try:
        with bar("checking") as progress:
            count = verify(plans)
            for done, index in enumerate(some, start=1):
                check_times_by_networkx(plans, [index])
                check_bounds_by_lp(plans, [index])
                if progress is not None:
                    progress(done / len(some))
    except PerseusError as error:
        raise PlanError(
            f"{options.plan} contradicts itself: {error.message}", hint="make it again with perseus-ds plan"
        ) from error
    found = {"plan": str(options.plan), "plans": count, "times_checked": some, "bounds_checked": some}
    print_result(
        json.dumps(found, indent=1)
        if options.json
        else f"{options.plan}: {count} plans, their times, energies and the baseline recomputed;"
        f" {len(some)} times found again by networkx, {len(some)} bounds proved by a linear program"
    )
    return DONE
