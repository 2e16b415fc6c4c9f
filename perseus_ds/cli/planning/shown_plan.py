"""What ``perseus-ds show`` prints: the plan that was chosen, as table, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator

import numpy as np

from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.cli.planning.clock_grid import clock_grid, headline, waiting
from perseus_ds.cli.quantity import refuse_idle
from perseus_ds.cli.terminal import grid, sentences
from perseus_ds.config import Objective
from perseus_ds.errors import PlanError, PlanFormatError, ProfileError
from perseus_ds.plan import FrequencyPlan, PlanSet, doubt, read_plans, select
from perseus_ds.plan.between import with_plan_within
from perseus_ds.plan.playing.play import Played, play
from perseus_ds.profile import profile_csv, profile_json, read_profile

COLUMNS = ("stage", "microbatch", "kind", "clock_mhz", "memory_mhz", "start_s", "duration_s", "energy_j")


def show(options: argparse.Namespace) -> int:
    """Choose a plan and print it; print a profile that stands in its place."""
    try:
        stored = read_plans(options.plan)
    except PlanFormatError as error:
        return _show_profile(options, error)
    plan = _chosen(stored, options)
    if doubtful := doubt(plan.of):
        remark(doubtful)
    if options.graph is not None:
        from perseus_ds.cli.planning.plan_graph import write_graph  # noqa: PLC0415  # networkx, seldom asked for

        remark(write_graph(plan, options.graph))
    if options.format == "csv":
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(_rows(plan))
    elif options.format == "json":
        say(json.dumps(_as_json(plan), indent=1))
    else:
        beside = "" if options.beside is None else f"{sentences(waiting(plan, options.beside))}\n"
        say(f"{headline(plan, _name(plan, stored))}\n{beside}\n{clock_grid(plan)}")
    return DONE


def _show_profile(options: argparse.Namespace, no_plan: PlanFormatError) -> int:
    """Print a profile in the form that was asked for.

    Raises:
        PerseusError: the file is neither a plan nor a profile.
    """
    try:
        profile = read_profile(options.plan)
    except ProfileError as error:
        raise (no_plan if options.plan.suffix.lower() == ".json" else error) from None
    refuse_idle(
        f"{options.plan} is a profile",
        graph=options.graph,
        plan=options.plan_number,
        beside=options.beside,
        max_slowdown=options.max_slowdown,
        deadline=options.deadline,
        power_cap=options.power_cap,
        min_energy=options.min_energy,
    )
    text = profile_json(profile) if options.format == "json" else profile_csv(profile)
    if options.format == "table":
        headings, *rows = csv.reader(text.splitlines())
        text = grid(headings, rows, texts=2)
    say(text.rstrip("\n"))
    return DONE


def _name(plan: FrequencyPlan, stored: PlanSet) -> str:
    """Which plan it is of those that the file holds."""
    place = int(np.searchsorted(stored.iteration_time_s, plan.iteration_time_s))
    if place < len(stored) and stored.iteration_time_s[place] == plan.iteration_time_s:
        return f"plan {place} of {len(stored)} (0 is the fastest)"
    return f"between plans {place - 1} and {place} of {len(stored)} (0 is the fastest)"


def _chosen(plans: PlanSet, options: argparse.Namespace) -> FrequencyPlan:
    """Take the plan that was asked for; within a time that is no plan's own, one between two of them.

    Raises:
        PlanError: there is no plan of that number.
    """
    if options.plan_number is not None:
        if options.plan_number >= len(plans):
            raise PlanError(
                f"{options.plan}: there is no plan {options.plan_number}",
                hint=f"its plans are 0 to {len(plans) - 1}, the fastest first",
            )
        return plans.plan(options.plan_number)
    if options.beside is not None:
        from perseus_ds.straggler import FrontierIndex  # noqa: PLC0415  # heavy, and seldom asked for

        return plans.plan(FrontierIndex.of(plans, Objective()).within(options.beside))
    objective = _objective(options)
    return select(with_plan_within(plans, objective), objective)


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
    """One row for a computation, one for each clock where it changes while it runs."""
    for played in _computations(plan):
        instruction, start_s = played.instruction, played.start_s
        for part in played.parts:
            yield (
                instruction.stage,
                instruction.microbatch,
                instruction.kind.value,
                *part.clocks,
                start_s,
                part.duration_s,
                part.energy_j,
            )
            start_s += part.duration_s


def _as_json(plan: FrequencyPlan) -> dict[str, object]:
    return {
        "iteration_time_s": plan.iteration_time_s,
        "energy_j": plan.energy_j,
        "saving_pct": plan.saving_pct,
        "saving_within_pct": plan.saving_within_pct,
        "slowdown_pct": plan.slowdown_pct,
        "gap_pct": float(plan.of.gap_pct[plan.index]),
        "fingerprint": dict(plan.of.fingerprint),
        "instructions": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(plan)],
    }
