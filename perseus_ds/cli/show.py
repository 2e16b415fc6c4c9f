"""A plan of a frontier, instruction by instruction.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
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
    log_stderr,
    not_negative,
    positive,
    print_result,
    refuse_idle,
    sentences,
)
from perseus_ds.config import Objective
from perseus_ds.errors import PlanError, ProfileError
from perseus_ds.plan import FrequencyPlan, PlanSet, read_plans, select
from perseus_ds.plan.clock_requests import play
from perseus_ds.plan.record import Options
from perseus_ds.plan.reserve import doubt
from perseus_ds.plan.select import plan_numbered, power_table, with_plan_within, worth
from perseus_ds.profile import read_profile
from perseus_ds.profile.files import profile_csv, profile_json
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.schedule import Kind, dag_of

if TYPE_CHECKING:
    import networkx as nx

CSV_COLUMNS = ("stage", "microbatch", "kind", "clock_mhz", "memory_mhz", "start_s", "duration_s", "energy_j")
_NAME = 11  # characters of "F stage 12 "
_POWER_ROWS = 24
"""A table on a screen shows so many points, evenly spread; CSV and JSON have all."""
_CRITICAL = 1e-9
"""Share of the iteration time up to which slack is rounding."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds show``."""
    file = "a run directory, or plan.json of one or of `plan -o`; or a profile"
    parser.add_argument("file", type=Path, metavar="PLAN", help=file)
    which = parser.add_mutually_exclusive_group()
    for flag, kind, metavar, words in (
        ("--max-slowdown", not_negative, "PCT", "least energy, at most PCT %% slower"),
        ("--deadline", positive, "S", "least energy within S seconds"),
        ("--power-cap", positive, "W", "fastest whose mean power for one pipeline is below W"),
        ("--plan", index, "N", "plan N, counted from 0, the fastest first"),
        ("--straggler", positive, "S", "what runs beside a straggler of S s per iteration"),
    ):
        which.add_argument(flag, type=kind, metavar=metavar, help=words)
    which.add_argument("--min-energy", action="store_true", help="least energy, however slow")
    graph = "also write the plan as a graph, with clock, slack and critical path: .graphml, .dot or .json"
    parser.add_argument("--graph", type=Path, metavar="FILE", help=graph)
    power = "power, slowdown and energy of every plan, for schedulers"
    parser.add_argument("--power", action="store_true", help=power)
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table", help="default: table")


def run(options: argparse.Namespace) -> int:
    """Choose a plan and print it; print a profile that stands in its place."""
    if options.file.is_dir():
        options.file /= "plan.json"
    try:
        stored = read_plans(options.file)
    except PlanError as error:
        _show_profile(options, error)
        return DONE
    if options.power:
        _refuse_choice(options, "--power prints every plan: leave it out for one plan")
        _show_power(stored, options.format)
        return DONE
    plan = _chosen(stored, options)
    if doubtful := doubt(plan.of):
        log_stderr(doubtful)
    if options.graph is not None:
        log_stderr(write_graph(plan, options.graph))
    if options.format == "csv":
        _print_csv(CSV_COLUMNS, _rows(plan))
    elif options.format == "json":
        print_result(json.dumps(_as_json(plan), indent=1))
    else:
        wait = "" if options.straggler is None else f"{sentences(_while_waiting(plan, options.straggler))}\n"
        print_result(f"{_headline(plan, stored)}\n{wait}\n{clock_grid(plan)}")
    return DONE


def _refuse_choice(options: argparse.Namespace, remedy: str) -> None:
    refuse_idle(
        remedy, **{k: v for k, v in vars(options).items() if k not in {"run", "file", "format", "power"}}
    )


def _print_csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerows([header, *rows])


def _show_profile(options: argparse.Namespace, no_plan: PlanError) -> None:
    """Print a profile in the form that was asked for."""
    try:
        profile = read_profile(options.file)
    except ProfileError as error:
        raise (no_plan if options.file.suffix.lower() == ".json" else error) from None
    refuse_idle(f"{options.file} is a profile", power=options.power)
    _refuse_choice(options, f"{options.file} is a profile")
    text = profile_json(profile) if options.format == "json" else profile_csv(profile)
    if options.format == "table":
        headings, *rows = csv.reader(text.splitlines())
        text = grid(headings, rows, texts=2)
    print_result(text.rstrip("\n"))


def _chosen(plans: PlanSet, options: argparse.Namespace) -> FrequencyPlan:
    """Take the plan that was asked for; within a time that is no plan's own, one between two of them."""
    if options.plan is not None:
        if options.plan >= len(plans):
            raise PlanError(
                f"{options.file}: there is no plan {options.plan}",
                hint=f"its plans are 0 to {len(plans) - 1}, the fastest first",
            )
        return plans.plan(options.plan)
    if options.straggler is not None:
        from perseus_ds.straggler.frontier_index import FrontierIndex  # noqa: PLC0415  # heavy, and seldom asked for

        return plan_numbered(plans, FrontierIndex.of(plans, Objective()).within(options.straggler))
    objective = Objective("min_energy" if options.min_energy else "no_slowdown")
    if options.max_slowdown is not None:
        objective = Objective("max_slowdown", max_slowdown_pct=options.max_slowdown)
    elif options.deadline is not None:
        objective = Objective("deadline", deadline_s=options.deadline)
    elif options.power_cap is not None:
        objective = Objective("power_cap", power_cap_w=options.power_cap)
    return select(with_plan_within(plans, objective), objective)


def _rows(plan: FrequencyPlan) -> Iterator[tuple[object, ...]]:
    """Yield one row for a computation, one for each clock where it changes while it runs."""
    for played in play(plan):
        one, start_s = played.instruction, played.start_s
        for part in played.parts if one.kind.is_computation else ():
            what = (one.stage, one.microbatch, one.kind.value)
            yield (*what, *part.clocks, start_s, part.duration_s, part.energy_j)
            start_s += part.duration_s


def _as_json(plan: FrequencyPlan) -> dict[str, object]:
    keys = ("iteration_time_s", "energy_j", "saving_pct", "saving_within_pct", "slowdown_pct")
    return {
        **{key: getattr(plan, key) for key in keys},
        "gap_pct": float(plan.of.gap_pct[plan.index]),
        "fingerprint": dict(plan.of.fingerprint),
        "instructions": [dict(zip(CSV_COLUMNS, row, strict=True)) for row in _rows(plan)],
    }


def _headline(plan: FrequencyPlan, stored: PlanSet) -> str:
    """State which plan it is of those that the file holds, and what it is worth."""
    place = int(np.searchsorted(stored.iteration_time_s, plan.iteration_time_s))
    own = place < len(stored) and stored.iteration_time_s[place] == plan.iteration_time_s
    name = f"plan {place}" if own else f"between plans {place - 1} and {place}"
    baseline, gap_pct = plan.of.baseline, float(plan.of.gap_pct[plan.index])
    valued = worth(plan.slowdown_pct, plan.saving_pct, gap_pct, plan.saving_within_pct)
    return (
        f"{bold(f'{name} of {len(stored)} (0 is the fastest): {valued}')}\n"
        f"{plan.iteration_time_s:.6g} s and {plan.energy_j:.6g} J per pipeline;"
        f" all clocks at maximum: {baseline.iteration_time_s:.6g} s, {baseline.energy_j:.6g} J"
    )


def _while_waiting(plan: FrequencyPlan, straggler_s: float) -> str:
    """State what the plan is worth while others are waited for: both sides over the straggler's time."""
    until_s = max(straggler_s, plan.of.baseline.iteration_time_s, plan.iteration_time_s)
    planned_j, all_j = plan.of.waiting_j(plan.index, until_s)
    return (
        f"beside a straggler of {straggler_s:.6g} s: {planned_j:.6g} J per pipeline with the wait"
        f" ({100.0 * (1.0 - planned_j / all_j):+z.2f} % saved of {all_j:.6g} J)"
    )


def clock_grid(plan: FrequencyPlan) -> str:
    """Draw the clocks: a column per microbatch where all fit, else neighbours at one clock as runs.

    ``2-7:885`` is microbatches 2 to 7 at 885 MHz; ``1395-1410`` are two clocks in the order of time.
    """
    options, microbatches = plan.of.options, range(plan.of.schedule.microbatches)
    clocks = {
        (i.stage, i.kind, i.microbatch): "-".join(
            _clock_text(options[i.stage, i.kind], option) for option, _ in portions
        )
        for i, portions in plan.portions().items()
    }
    kinds = [kind for kind in Kind if any(own is kind for _, own, _ in clocks)]
    rows = {
        f"{kind.value} stage {stage}".ljust(_NAME): [clocks.get((stage, kind, m)) for m in microbatches]
        for kind in kinds
        for stage in range(plan.of.schedule.stages)
    }
    cell = 1 + max(4, *map(len, clocks.values()))
    if _NAME + cell * len(microbatches) <= COLUMNS:
        lines = [name + "".join(f"{one or '.':>{cell}}" for one in row) for name, row in rows.items()]
        return "\n".join(["microbatch" + "".join(f"{m:>{cell}}" for m in microbatches), *lines])
    return "\n".join(["MHz by microbatch", *(name + _runs(row) for name, row in rows.items())])


def _runs(row: Sequence[str | None]) -> str:
    words = []
    for clock, run in groupby(enumerate(row), lambda item: item[1]):
        found = [m for m, _ in run]
        if clock is not None:
            words.append(f"{found[0]}{f'-{found[-1]}' if len(found) > 1 else ''}:{clock}")
    text = textwrap.fill(" ".join(words), COLUMNS - _NAME, break_on_hyphens=False, break_long_words=False)
    return text.replace("\n", "\n" + " " * _NAME)


def _clock_text(options: Options, option: int) -> str:
    segments = options.segments(option)
    memory = any(segment.memory_mhz is not None for segment in segments)
    return f"{'~' if len(segments) > 1 else ''}{options.mean_mhz(option):.0f}{'m' if memory else ''}"


def _show_power(plans: PlanSet, form: str) -> None:
    """Print the frontier as power against time."""
    table, time_s, energy_j = power_table(plans), plans.baseline.iteration_time_s, plans.baseline.energy_j
    default_w, rows = energy_j / time_s, [asdict(point) for point in table]
    if form == "csv":
        _print_csv(list(rows[0]), (row.values() for row in rows))
        return
    if form == "json":
        default = {"power_w": default_w, "iteration_time_s": time_s, "energy_j": energy_j}
        content = {"of": "one pipeline", "gpus": plans.schedule.ranks, "default": default}
        print_result(json.dumps({**content, "power_s_table": rows}, indent=1))
        return
    step = max(1, -(-(len(table) - 1) // (_POWER_ROWS - 1))) if len(table) > 1 else 1
    headings = ["power W", "slower %", "s/iteration", "J/iteration", "saved %", "swing within 1 s, W"]
    cells = [
        [
            *(f"{one.power_w:.0f}", f"{one.slowdown_pct:+.2f}", f"{one.iteration_time_s:.5g}"),
            *(f"{one.energy_j:.5g}", f"{one.saving_pct:.1f}", f"{one.swing_w:.0f}"),
        ]
        for one in [*table[:-1:step], table[-1]]
    ]
    print_result(
        f"one pipeline of {plans.schedule.ranks} GPUs; at default clocks {default_w:.5g} W,"
        f" {time_s:.4g} s\n{grid(headings, cells, texts=0)}"
    )


def write_graph(plan: FrequencyPlan, path: Path) -> str:
    """Write the plan as a graph in the format of the file's ending; state in one line what was written.

    Raises:
        PlanError: another ending, or a file that cannot be written.
    """
    import networkx as nx  # noqa: PLC0415  # seldom asked for

    graph, ending = graph_of(plan), path.suffix.lower()
    if ending == ".graphml":
        text = "\n".join(nx.generate_graphml(graph))
    elif ending == ".dot":
        text = _dot(graph)
    elif ending == ".json":  # written out: node_link_data of networkx before 3.4 has other names
        nodes = [{**node, "id": name} for name, node in graph.nodes(data=True)]
        edges = [{**edge, "source": one, "target": other} for one, other, edge in graph.edges(data=True)]
        content = {"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges}
        text = json.dumps(content, indent=1)
    else:
        formats = "a graph is written as .graphml, .dot or .json"
        raise PlanError(f"{path}: no format of that name", hint=formats)
    try:
        write_whole(path, text + "\n")
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
    the iteration; it is ``critical`` without slack. ``generation`` is how many stand before it in the
    longest row. A computation also has ``energy_j`` and its clocks in the order of time:
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
    for generation, names in enumerate(nx.topological_generations(graph)):
        for name in names:
            graph.nodes[name]["generation"] = generation
    total_s = max(node["start_s"] + node["duration_s"] for _, node in graph.nodes(data=True))
    latest_s: dict[str, float] = {}
    for name in reversed(list(nx.topological_sort(graph))):
        node = graph.nodes[name]
        due_s = (latest_s[after] - edge["delay_s"] for _, after, edge in graph.out_edges(name, data=True))
        latest_s[name] = min(due_s, default=total_s) - node["duration_s"]
        slack_s = latest_s[name] - node["start_s"]
        node["critical"] = slack_s <= _CRITICAL * total_s
        node["slack_s"] = 0.0 if node["critical"] else slack_s
    return graph


def _dot(graph: nx.DiGraph) -> str:
    """Write what Graphviz draws: the clock under the name, critical instructions in red."""

    def row(name: str, values: dict[str, Any]) -> str:
        return f"  {name} [{', '.join(f'{key}={json.dumps(str(value))}' for key, value in values.items())}];"

    rows = []
    for name, node in graph.nodes(data=True):
        label = f"{name}\n{node['clocks_mhz']} MHz" if "clocks_mhz" in node else name
        looks = {"label": label, "color": "red" if node["critical"] else "black"}
        rows.append(row(json.dumps(name), looks | node))
    rows += [row(f"{json.dumps(a)} -> {json.dumps(b)}", edge) for a, b, edge in graph.edges(data=True)]
    return "\n".join(["digraph plan {", "  rankdir=LR;", *rows, "}"])
