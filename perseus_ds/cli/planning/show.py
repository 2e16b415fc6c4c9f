"""One plan of a frontier, instruction by instruction.

Without a choice it is the plan that loses no time. `--beside S` is the plan that a job runs while
it waits for a straggler of S seconds. The table has a row per stage and a clock in MHz per
microbatch. ~1200 is the mean of a computation that changes its clock at moments of its own; m comes
with its memory clock. The formats csv and json have one record per computation, and one for each
clock where it changes while it runs. A record has its place in the iteration (start by the longest
path through the schedule, duration) and the energy of its work. The memory clock is empty where it
is the device's own. `--power` prints the whole frontier instead: what a pipeline takes at every
plan. A profile in place of PLAN is printed as a table, as the CSV of Zeus
(stage,instruction,frequency,time,energy: the points alone) or as our JSON.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perseus_ds.cli.quantity import index, not_negative, positive, refuse_idle

_USAGE = """perseus-ds show [-h] [--format {table,csv,json}] [--graph FILE] [--power]
                       [--max-slowdown PCT | --deadline S | --power-cap W | --min-energy |
                        --plan N | --beside S]
                       PLAN"""  # argparse breaks no line between alternatives


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds show``."""
    parser.usage = _USAGE
    parser.add_argument(
        "plan",
        type=Path,
        metavar="PLAN",
        help="plan.json of a run directory, or of `plan -o`; or a profile",
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
    which.add_argument(
        "--plan",
        dest="plan_number",
        type=index,
        metavar="N",
        help="plan N, counted from 0, the fastest first",
    )
    which.add_argument(
        "--beside", type=positive, metavar="S", help="what runs beside a straggler of S seconds per iteration"
    )
    parser.add_argument(
        "--graph",
        type=Path,
        metavar="FILE",
        help="also write the plan as a graph, with clock, slack and critical path: .graphml, .dot or .json",
    )
    parser.add_argument(
        "--power", action="store_true", help="power, slowdown and energy of every plan, for schedulers"
    )
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table", help="default: table")


def run(options: argparse.Namespace) -> int:
    """Choose a plan and print it."""
    if options.power:
        refuse_idle(
            "--power prints every plan: leave it out for one plan",
            graph=options.graph,
            plan=options.plan_number,
            beside=options.beside,
            max_slowdown=options.max_slowdown,
            deadline=options.deadline,
            power_cap=options.power_cap,
            min_energy=options.min_energy,
        )
        from perseus_ds.cli.planning.shown_power import show_power  # noqa: PLC0415  # the planner, only when called

        return show_power(options)
    from perseus_ds.cli.planning.shown_plan import show  # noqa: PLC0415  # the planner, only when called

    return show(options)
