"""One plan of a frontier, instruction by instruction.

Without a choice it is the plan that loses no time. `--straggler S` is the plan that a job runs while
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
import csv
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perseus_ds.cli.output import (
    COLUMNS,
    DONE,
    bold,
    grid,
    index,
    not_negative,
    positive,
    refuse_idle,
    remark,
    say,
    sentences,
)
from perseus_ds.config import Objective
from perseus_ds.errors import PlanError, PlanFormatError, ProfileError
from perseus_ds.plan import FrequencyPlan, Options, PlanSet, doubt, read_plans, select, worth
from perseus_ds.plan.clock_requests import Played, play
from perseus_ds.plan.select import PowerPoint, power_table, with_plan_within
from perseus_ds.profile import profile_csv, profile_json, read_profile
from perseus_ds.run_directory.whole_file import write_whole
from perseus_ds.schedule import Instruction, Kind, dag_of

if TYPE_CHECKING:
    import networkx as nx

_USAGE = """perseus-ds show [-h] [--format {table,csv,json}] [--graph FILE] [--power]
                       [--max-slowdown PCT | --deadline S | --power-cap W | --min-energy |
                        --plan N | --straggler S]
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
        "--straggler",
        type=positive,
        metavar="S",
        help="what runs beside a straggler of S seconds per iteration",
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
            straggler=options.straggler,
            max_slowdown=options.max_slowdown,
            deadline=options.deadline,
            power_cap=options.power_cap,
            min_energy=options.min_energy,
        )
        # the planner, only when called

        return show_power(options)
    # the planner, only when called

    return show(options)


# A plan as text: clocks in MHz, a row per stage and kind, by microbatch.

_NAME = 11  # characters of "F stage 12 "


def headline(plan: FrequencyPlan, name: str) -> str:
    """State which plan it is and what it is worth."""
    baseline, gap_pct = plan.of.baseline, float(plan.of.gap_pct[plan.index])
    valued = worth(plan.slowdown_pct, plan.saving_pct, gap_pct, plan.saving_within_pct)
    return (
        f"{bold(f'{name}: {valued}')}\n"
        f"{plan.iteration_time_s:.6g} s and {plan.energy_j:.6g} J per pipeline;"
        f" all clocks at maximum: {baseline.iteration_time_s:.6g} s, {baseline.energy_j:.6g} J"
    )


def waiting(plan: FrequencyPlan, straggler_s: float) -> str:
    """State what the plan is worth while others are waited for: both sides over the straggler's time.

    Source: arXiv 2312.06902, equation 3.
    """
    plans, baseline = plan.of, plan.of.baseline
    until_s = max(straggler_s, baseline.iteration_time_s, plan.iteration_time_s)
    planned_j = float(plans.effective_energy_j[plan.index]) + plans.blocking_total_w * until_s
    waited_w = baseline.blocking_power_w * plans.schedule.ranks
    all_j = baseline.energy_j + waited_w * (until_s - baseline.iteration_time_s)
    saved_pct = f"{100.0 * (1.0 - planned_j / all_j):+z.2f}"
    return (
        f"beside a straggler of {straggler_s:.6g} s: {planned_j:.6g} J per pipeline with the wait"
        f" ({saved_pct} % saved of {all_j:.6g} J)"
    )


def clock_grid(plan: FrequencyPlan) -> str:
    """Draw the clocks: a column per microbatch where all fit, else neighbours at one clock as runs."""
    clocks = _clocks_mhz(plan)
    kinds = [kind for kind in Kind if any(i.kind is kind for i in clocks)]
    rows = [(kind, stage) for kind in kinds for stage in range(plan.of.schedule.stages)]
    microbatches = range(plan.of.schedule.microbatches)
    cell = 1 + max(4, *map(len, clocks.values()))
    if _NAME + cell * len(microbatches) > COLUMNS:
        return "\n".join(["MHz by microbatch", *(_runs(clocks, *row, microbatches) for row in rows)])
    head = "microbatch" + "".join(f"{m:>{cell}}" for m in microbatches)
    return "\n".join([head, *(_columns(clocks, *row, microbatches, cell) for row in rows)])


def _columns(
    clocks: Mapping[Instruction, str], kind: Kind, stage: int, microbatches: range, cell: int
) -> str:
    cells = [clocks.get(Instruction(stage, kind, m)) or "." for m in microbatches]
    return _row_name(kind, stage) + "".join(f"{clock:>{cell}}" for clock in cells)


def _runs(clocks: Mapping[Instruction, str], kind: Kind, stage: int, microbatches: range) -> str:
    """One stage's clocks: ``2-7:885`` is microbatches 2 to 7 at 885 MHz; long rows go on in the next line."""
    words = []
    for clock, run in groupby(microbatches, lambda m: clocks.get(Instruction(stage, kind, m))):
        found = list(run)
        if clock is not None:
            words.append(f"{_extent(found)}:{clock}")
    text = textwrap.fill(" ".join(words), COLUMNS - _NAME, break_on_hyphens=False, break_long_words=False)
    return _row_name(kind, stage) + text.replace("\n", "\n" + " " * _NAME)


def _extent(found: list[int]) -> str:
    return str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


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


def _row_name(kind: Kind, stage: int) -> str:
    return f"{kind.value} stage {stage}".ljust(_NAME)


# What ``perseus-ds show`` prints: the plan that was chosen, as table, CSV or JSON.

CSV_COLUMNS = ("stage", "microbatch", "kind", "clock_mhz", "memory_mhz", "start_s", "duration_s", "energy_j")


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
        # networkx, seldom asked for

        remark(write_graph(plan, options.graph))
    if options.format == "csv":
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(CSV_COLUMNS)
        rows.writerows(_rows(plan))
    elif options.format == "json":
        say(json.dumps(_as_json(plan), indent=1))
    else:
        beside = "" if options.straggler is None else f"{sentences(waiting(plan, options.straggler))}\n"
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
        straggler=options.straggler,
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
    if options.straggler is not None:
        from perseus_ds.straggler.frontier_index import FrontierIndex  # noqa: PLC0415  # heavy, and seldom asked for

        return plans.plan(FrontierIndex.of(plans, Objective()).within(options.straggler))
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
        "instructions": [dict(zip(CSV_COLUMNS, row, strict=True)) for row in _rows(plan)],
    }


# What ``perseus-ds show PLAN --power`` prints: power, slowdown and energy of every plan.

_ROWS = 24
"""A table on a screen shows so many points, evenly spread; CSV and JSON have all."""


def show_power(options: argparse.Namespace) -> int:
    """Print the frontier as power against time."""
    plans = read_plans(options.plan)
    table = power_table(plans)
    if options.format == "csv":
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow([field.name for field in fields(PowerPoint)])
        rows.writerows([*asdict(point).values()] for point in table)
    elif options.format == "json":
        say(json.dumps(_power_json(plans, table), indent=1))
    else:
        say(_table(plans, table))
    return DONE


def _power_json(plans: PlanSet, table: Sequence[PowerPoint]) -> dict[str, object]:
    baseline = plans.baseline
    return {
        "of": "one pipeline",
        "gpus": plans.schedule.ranks,
        "default": {
            "power_w": baseline.energy_j / baseline.iteration_time_s,
            "iteration_time_s": baseline.iteration_time_s,
            "energy_j": baseline.energy_j,
        },
        "power_s_table": [asdict(point) for point in table],
    }


def _table(plans: PlanSet, table: Sequence[PowerPoint]) -> str:
    baseline = plans.baseline
    step = max(1, -(-(len(table) - 1) // (_ROWS - 1))) if len(table) > 1 else 1
    shown = [*table[:-1:step], table[-1]]
    at_default = f"{baseline.energy_j / baseline.iteration_time_s:.5g} W, {baseline.iteration_time_s:.4g} s"
    head = f"{'power, W':>10} {'slower, %':>10} {'s/iteration':>12} {'J/iteration':>12} {'saved, %':>9}"
    return "\n".join(
        [
            f"one pipeline of {plans.schedule.ranks} GPUs; at default clocks {at_default}",
            f"{head} {'swing within 1 s, W':>20}",
            *(
                f"{one.power_w:10.0f} {one.slowdown_pct:+10.2f} {one.iteration_time_s:12.5g} "
                f"{one.energy_j:12.5g} {one.saving_pct:9.1f} {one.swing_w:20.0f}"
                for one in shown
            ),
        ]
    )


# A plan as a graph for other tools: GraphML, DOT, or JSON as networkx reads it.

_CRITICAL = 1e-9
"""Share of the iteration time up to which slack is rounding."""


def write_graph(plan: FrequencyPlan, path: Path) -> str:
    """Write the graph in the format that the file's name ends with; state in one line what was written.

    Raises:
        PlanError: another ending, or a file that cannot be written.
    """
    import networkx as nx  # noqa: PLC0415  # seldom asked for

    as_text = _FORMATS.get(path.suffix.lower())
    if as_text is None:
        raise PlanError(
            f"{path}: no format of that name", hint=f"a graph is written as {', '.join(_FORMATS)}"
        )
    graph = graph_of(plan)
    try:
        write_whole(path, as_text(graph))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", hint="give a file that can be written") from error
    critical = sum(node["critical"] for _, node in graph.nodes(data=True))
    return (
        f"{path}: {len(graph)} instructions, {graph.size()} precedences, {critical} without slack,"
        f" {nx.dag_longest_path_length(graph, weight=None) + 1} in a row at most"
    )


def graph_of(plan: FrequencyPlan) -> nx.DiGraph:
    """Return the schedule's graph with what the plan makes of every instruction.

    A node has ``stage``, ``kind``, ``microbatch``, ``rank``; ``start_s`` and ``duration_s`` are as
    run on paper, without reserve. ``slack_s`` is how much later it could start with no later end of
    the iteration; ``critical`` is whether that is nothing. ``generation`` is how many stand before
    it in the longest row. A computation also has ``energy_j`` and its clocks in the order of time:
    ``clocks_mhz``, ``clock_mhz`` of the longest part. An edge along which data travels has its
    ``transfer`` and ``delay_s``.
    """
    import networkx as nx  # noqa: PLC0415  # seldom asked for

    plans = plan.of
    graph, ranks = dag_of(plans.schedule).to_networkx(), plans.schedule.rank_of_stages()
    fixed_s = {f"{stage}{kind.value}": time_s for (stage, kind), time_s in plans.fixed_s.items()}
    for one in play(plan):
        node = graph.nodes[str(one.instruction)]
        node |= {"rank": ranks[one.instruction.stage], "start_s": one.start_s, "duration_s": one.duration_s}
        if one.parts:
            clocks_mhz = "-".join(str(part.clock_mhz) for part in one.parts)
            node |= {"clock_mhz": one.clock_mhz, "clocks_mhz": clocks_mhz, "energy_j": one.energy_j}
    for _, _, edge in graph.edges(data=True):
        edge["delay_s"] = fixed_s.get(edge.get("transfer", ""), 0.0)
    _add_slack(graph)
    for generation, names in enumerate(nx.topological_generations(graph)):
        for name in names:
            graph.nodes[name]["generation"] = generation
    return graph


def _add_slack(graph: nx.DiGraph) -> None:
    """From the last end back: when each must be over at the latest."""
    import networkx as nx  # noqa: PLC0415  # seldom asked for

    nodes = graph.nodes
    total_s = max(node["start_s"] + node["duration_s"] for _, node in nodes(data=True))
    latest_s: dict[str, float] = {}
    for name in reversed(list(nx.topological_sort(graph))):
        due_s = (latest_s[after] - edge["delay_s"] for _, after, edge in graph.out_edges(name, data=True))
        latest_s[name] = min(due_s, default=total_s) - nodes[name]["duration_s"]
        slack_s = max(0.0, latest_s[name] - nodes[name]["start_s"])
        nodes[name]["critical"] = slack_s <= _CRITICAL * total_s
        nodes[name]["slack_s"] = 0.0 if nodes[name]["critical"] else slack_s


def _graphml(graph: nx.DiGraph) -> str:
    import networkx as nx  # noqa: PLC0415  # seldom asked for

    return "\n".join(nx.generate_graphml(graph)) + "\n"


def _dot(graph: nx.DiGraph) -> str:
    rows = [
        f"  {_quoted(name)} [{_pairs(_looks(name, node) | node)}];" for name, node in graph.nodes(data=True)
    ]
    rows += [f"  {_quoted(a)} -> {_quoted(b)} [{_pairs(edge)}];" for a, b, edge in graph.edges(data=True)]
    return "\n".join(["digraph plan {", "  rankdir=LR;", *rows, "}"]) + "\n"


def _looks(name: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """What Graphviz draws: the clock under the name, critical instructions in red."""
    label = f"{name}\n{node['clocks_mhz']} MHz" if "clocks_mhz" in node else name
    return {"label": label, "color": "red" if node["critical"] else "black"}


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_quoted(value)}" for key, value in values.items())


def _quoted(value: object) -> str:
    return json.dumps(str(value))


def _json(graph: nx.DiGraph) -> str:
    import networkx as nx  # noqa: PLC0415  # seldom asked for

    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=1) + "\n"


_FORMATS: Mapping[str, Callable[[nx.DiGraph], str]] = {".graphml": _graphml, ".dot": _dot, ".json": _json}
