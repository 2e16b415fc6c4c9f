"""A plan as a graph for other tools: GraphML, DOT, or JSON as networkx reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx

from perseus_ds.errors import PlanError
from perseus_ds.plan import FrequencyPlan
from perseus_ds.plan.playing.play import play
from perseus_ds.run_directory import write_whole
from perseus_ds.schedule import dag_of

_CRITICAL = 1e-9
"""Share of the iteration time up to which slack is rounding."""


def write_graph(plan: FrequencyPlan, path: Path) -> str:
    """Write the graph in the format that the file's name ends with; state in one line what was written.

    Raises:
        PlanError: another ending, or a file that cannot be written.
    """
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
    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=1) + "\n"


_FORMATS: Mapping[str, Callable[[nx.DiGraph], str]] = {".graphml": _graphml, ".dot": _dot, ".json": _json}
