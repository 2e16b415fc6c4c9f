"""One plan of a frontier, instruction by instruction.

Without a choice it is the plan that loses no time. The table has a row per stage and a clock in MHz per
microbatch; csv and json have one record per computation (two where it changes its clock while it
runs) with its place in the iteration: start by the longest path through the schedule, duration, and the
energy of its work.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from perseus_ds.cli.clock_grid import clock_grid, headline
from perseus_ds.cli.exit_code import DONE
from perseus_ds.cli.output import remark, say
from perseus_ds.cli.quantity import not_negative, positive
from perseus_ds.config import Objective
from perseus_ds.plan import FrequencyPlan, doubt, read_plans, select
from perseus_ds.plan.play import Played, play

COLUMNS = ("stage", "microbatch", "kind", "clock_mhz", "start_s", "duration_s", "energy_j")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds show``."""
    parser.add_argument(
        "plan", type=Path, metavar="PLAN", help="plan.json of a run directory, or what `plan -o` wrote"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--max-slowdown", type=not_negative, metavar="PCT", help="least energy, at most PCT %% slower"
    )
    which.add_argument("--deadline", type=positive, metavar="S", help="least energy within S seconds")
    which.add_argument(
        "--power-cap", type=positive, metavar="W", help="fastest whose mean power for one pipeline is below W"
    )
    which.add_argument("--min-energy", action="store_true", help="least energy, however slow")
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table", help="default: table")


def run(options: argparse.Namespace) -> int:
    """Choose a plan and print it."""
    plan = select(read_plans(options.plan), _objective(options))
    if doubtful := doubt(plan.of):
        remark(doubtful)
    if options.format == "csv":
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(_rows(plan))
    elif options.format == "json":
        say(json.dumps(_as_json(plan), indent=1))
    else:
        say(f"{headline(plan)}\n\n{clock_grid(plan)}")
    return DONE


def _objective(options: argparse.Namespace) -> Objective:
    if options.max_slowdown is not None:
        return Objective("max_slowdown", max_slowdown_pct=options.max_slowdown)
    if options.deadline is not None:
        return Objective("deadline", deadline_s=options.deadline)
    if options.power_cap is not None:
        return Objective("power_cap", power_cap_w=options.power_cap)
    return Objective("min_energy" if options.min_energy else "no_slowdown")


def _computations(plan: FrequencyPlan) -> list[Played]:
    return [played for played in play(plan) if played.instruction.kind.is_computation]


def _rows(plan: FrequencyPlan) -> Iterator[tuple[object, ...]]:
    """One row for a computation, two for one that changes its clock while it runs."""
    for played in _computations(plan):
        instruction, start_s = played.instruction, played.start_s
        for clock_mhz, duration_s, energy_j in played.parts:
            kind = instruction.kind.value
            yield instruction.stage, instruction.microbatch, kind, clock_mhz, start_s, duration_s, energy_j
            start_s += duration_s


def _as_json(plan: FrequencyPlan) -> dict[str, object]:
    return {
        "iteration_time_s": plan.iteration_time_s,
        "energy_j": plan.energy_j,
        "saving_pct": plan.saving_pct,
        "slowdown_pct": plan.slowdown_pct,
        "gap_pct": float(plan.of.gap_pct[plan.index]),
        "fingerprint": dict(plan.of.fingerprint),
        "instructions": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(plan)],
    }
