"""The same instances solved by lowtime 0.3.0 and by us, one after the other in this process.

Run: ``pip install lowtime``, then ``python scripts/bench/frontier/beside_lowtime.py 12 [48] > result.json``
(microbatches of GPT-3 175B on 8 stages; lowtime takes minutes for 48).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import networkx as nx
import numpy as np
from instances import BLOCKING_W, measured, pipeline
from lowtime.cost_model import ExponentialModel
from lowtime.graph_utils import add_sink_node, add_source_node
from lowtime.operation import CandidateExecutionOptions, ExecutionOption, Operation, OperationSpec
from lowtime.solver import PhillipsDessouky

from perseus_ds.solver.discretise import discretise
from perseus_ds.solver.frontier import solve_frontier
from perseus_ds.solver.problem import Plans, Problem

STAGES, UNIT_S, SAMPLES = 8, 0.001, 40
Plan = tuple[float, float]


def main() -> None:
    """Print one row per instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("microbatches", type=int, nargs="+")
    print(json.dumps([beside(count) for count in parser.parse_args().microbatches], indent=1))


def beside(microbatches: int) -> dict[str, float | int]:
    """CPU seconds of both solvers, and what lowtime's plans cost above ours at their real iteration times.

    The curve fit that lowtime needs first is not counted.
    """
    problem = pipeline(measured(STAGES), stages=STAGES, microbatches=microbatches)
    solve_frontier(problem)
    ours_s = statistics.median(_cpu_s(lambda: solve_frontier(problem)) for _ in range(5))
    graph = _graph(problem)
    began = time.process_time()
    points = [(step.real_time, _knobs(graph)) for step in PhillipsDessouky(graph).run()]
    theirs_s = time.process_time() - began
    frontier = solve_frontier(problem)
    plans = [_real(problem, knobs) for _, knobs in points[:: max(1, len(points) // SAMPLES)]]
    wanted_s = np.array([time_s for time_s, _ in plans])
    ours = discretise(problem, frontier, np.maximum(wanted_s, frontier.t_min_s))
    above_pct = [_above_pct(ours, plan) for plan in plans]
    return {
        "microbatches": microbatches,
        "ours_cpu_s": ours_s,
        "lowtime_cpu_s": theirs_s,
        "ratio": theirs_s / ours_s,
        "ours_breakpoints": len(frontier),
        "lowtime_points": len(points),
        "lowtime_planned_t_min_s": min(time_s for time_s, _ in points),
        "lowtime_real_t_min_s": float(wanted_s.min()),
        "t_min_s": frontier.t_min_s,
        "lowtime_energy_above_ours_pct": {
            "least": min(above_pct),
            "mean": statistics.mean(above_pct),
            "most": max(above_pct),
        },
    }


def _graph(problem: Problem) -> nx.DiGraph:
    specs = []
    for table in problem.tables:
        options = CandidateExecutionOptions(
            options=[
                ExecutionOption(real_time=time_s, unit_time=UNIT_S, cost=cost_j, knob=knob)
                for knob, (time_s, cost_j) in enumerate(zip(table.duration_s, table.cost_j, strict=True))
            ]
        )
        specs.append(OperationSpec(options=options, cost_model=ExponentialModel(options)))
    graph = nx.DiGraph()
    for activity, table in enumerate(problem.table_of):
        graph.add_node(activity, op=Operation(spec=specs[table]))
    graph.add_edges_from(zip(problem.before.tolist(), problem.after.tolist(), strict=True))
    add_source_node(graph, "source")
    add_sink_node(graph, "sink")
    graph.graph["source_node"], graph.graph["sink_node"] = "source", "sink"
    return graph


def _knobs(graph: nx.DiGraph) -> list[int]:
    return [op.assigned_knob for _, op in graph.nodes(data="op") if not op.is_dummy]


def _real(problem: Problem, knobs: list[int]) -> Plan:
    """What a plan takes and costs with the measured durations, which lowtime floors to its unit."""
    chosen = [(problem.tables[table], knob) for table, knob in zip(problem.table_of, knobs, strict=True)]
    fixed = Problem(
        tuple(type(table)(table.duration_s[[knob]], table.cost_j[[knob]]) for table, knob in chosen),
        np.arange(len(problem)),
        problem.before,
        problem.after,
        problem.delay_s,
    )
    return solve_frontier(fixed).t_min_s, float(sum(table.cost_j[knob] for table, knob in chosen))


def _above_pct(ours: Plans, plan: Plan) -> float:
    time_s, cost_j = plan
    fits = np.flatnonzero(ours.time_s <= time_s * (1 + 1e-12))
    ours_j = float(ours.cost_j[fits].min())
    return 100.0 * (cost_j - ours_j) / (ours_j + STAGES * BLOCKING_W * time_s)


def _cpu_s(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
