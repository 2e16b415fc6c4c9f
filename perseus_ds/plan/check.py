"""A plan file by another road: its times by networkx, its certified bounds by a linear program (HiGHS)."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from perseus_ds.errors import SolverError
from perseus_ds.plan.record import PlanSet
from perseus_ds.schedule import Instruction, dag_of

_RELATIVE = 1e-9  # sums of up to a million doubles
_END = "end"
CLOSE = 1e-3
"""Share of the total energy by which a stated bound may lie below what the linear program proves."""
EXACT = 1e-6
"""Share by which it may lie above: the tolerance of the linear program."""


def check_times_by_networkx(plans: PlanSet, indexes: list[int]) -> None:
    """Find the iteration time of some plans, T_min, and the baseline's time, from options and orders alone.

    They are longest paths through the schedule's graph.

    Raises:
        SolverError: a time that is another.
    Cost: one walk over the graph in Python for each: a second for some hundred thousand edges.
    """
    paths = _Paths(plans)
    fastest = {i: float(plans.options[i.stage, i.kind].time_s.min()) for i in plans.computations()}
    highest = {i: float(plans.options[i.stage, i.kind].time_s[0]) for i in plans.computations()}
    said = [("T_min", plans.t_min_s, fastest), ("the baseline", plans.baseline.iteration_time_s, highest)]
    for index in indexes:
        planned = {
            i: sum(
                share * float(plans.options[i.stage, i.kind].planned_s(plans.reserve_pct)[option])
                for option, share in portions
            )
            for i, portions in plans.plan(index).portions().items()
        }
        said.append((f"plan {index}", float(plans.iteration_time_s[index]), planned))
    for what, said_s, lasts_s in said:
        found_s = paths.longest_s(lasts_s)
        if not abs(said_s - found_s) <= _RELATIVE * found_s:
            raise SolverError(
                f"{what} states an iteration time of {said_s:.9g} s, its longest path is {found_s:.9g} s"
            )


class _Paths:
    """The graph of a schedule with an end that follows everything."""

    def __init__(self, plans: PlanSet) -> None:
        self._fixed_s = {f"{stage}{kind.value}": time_s for (stage, kind), time_s in plans.fixed_s.items()}
        self._nodes = {str(node): node for node in dag_of(plans.schedule).nodes}
        self._graph = dag_of(plans.schedule).to_networkx()
        self._graph.add_edges_from([(name, _END) for name in self._nodes])
        self._key = {name: f"{node.stage}{node.kind.value}" for name, node in self._nodes.items()}

    def longest_s(self, computed_s: Mapping[Instruction, float]) -> float:
        """The longest path, with what is fixed and what travels meanwhile."""
        for before, _, edge in self._graph.edges(data=True):
            node = self._nodes[before]
            lasts_s = computed_s[node] if node in computed_s else self._fixed_s[self._key[before]]
            edge["weight"] = lasts_s + (self._fixed_s[edge["transfer"]] if "transfer" in edge else 0.0)
        return float(nx.dag_longest_path_length(self._graph))


def check_bounds_by_lp(plans: PlanSet, indexes: list[int]) -> None:
    """Solve the relaxed problem for some plans' times, from options and orders alone.

    Raises:
        SolverError: a bound above what is true, or far below it.
    Cost: a linear program of nodes times options each: a second for some thousand nodes.
    """
    program = _LinearProgram(plans)
    waiting_w = plans.blocking_total_w
    for index in indexes:
        time_s, scale_j = float(plans.iteration_time_s[index]), float(plans.energy_j[index])
        effective_j = program.least_j(time_s, within=False)
        total_j = program.least_j(time_s, within=True, waiting_w=waiting_w)
        for what, said_j, true_j in (
            ("bound on effective energy", float(plans.effective_bound_j[index]), effective_j),
            ("certified bound", float(plans.lower_bound_j[index]), total_j),
        ):
            if not -CLOSE * scale_j <= said_j - true_j <= EXACT * scale_j:
                raise SolverError(
                    f"plan {index}: its {what} is {said_j:.9g} J, a linear program finds {true_j:.9g} J"
                )


class _LinearProgram:
    """Variables: a share of work for every option of every computation, starts, and the iteration time."""

    def __init__(self, plans: PlanSet) -> None:
        self._dag = dag_of(plans.schedule)
        nodes, count = self._dag.nodes, len(self._dag.nodes)
        self._shares: list[range] = []
        self._time_s: list[NDArray[np.float64]] = []
        cost_j: list[NDArray[np.float64]] = []
        first = 0
        for node in nodes:
            key = node.stage, node.kind
            if node.kind.is_computation:
                options = plans.options[key]
                time_s = options.planned_s(plans.reserve_pct)
                cost_j.append(options.energy_j - plans.blocking_power_w * options.time_s)
            else:
                time_s = np.array([plans.fixed_s[key]])
                cost_j.append(np.zeros(1))
            self._time_s.append(time_s)
            self._shares.append(range(first, first + len(time_s)))
            first += len(time_s)
        self._starts, self._end = first, first + count
        self._cost_j = np.concatenate([*cost_j, np.zeros(count + 1)])
        self._delays_s = self._dag.delays_s(plans.fixed_s)

    def least_j(self, time_s: float, *, within: bool, waiting_w: float = 0.0) -> float:
        """The least effective energy in ``time_s``; ``within``: with waiting, in any shorter time too."""
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        right: list[float] = []
        for row, ((before, after), delay_s) in enumerate(zip(self._dag.edges, self._delays_s, strict=True)):
            self._row(rows, columns, values, row, before)
            rows.append(row)
            columns.append(self._starts + after)
            values.append(-1.0)
            right.append(-delay_s)
        for node in range(len(self._dag.nodes)):
            row = len(right)
            self._row(rows, columns, values, row, node)
            rows.append(row)
            columns.append(self._end)
            values.append(-1.0)
            right.append(0.0)
        whole_rows = [node for node, shares in enumerate(self._shares) for _ in shares]
        size = self._end + 1
        ones = coo_array(
            (np.ones(self._starts), (whole_rows, range(self._starts))), shape=(len(self._shares), size)
        )
        cost_j = self._cost_j.copy()
        cost_j[self._end] = waiting_w
        found = linprog(  # type: ignore[call-overload]  # scipy-stubs do not know of sparse matrices
            cost_j,
            A_ub=coo_array((values, (rows, columns)), shape=(len(right), size)),
            b_ub=right,
            A_eq=ones,
            b_eq=np.ones(len(self._shares)),
            bounds=[(0, None)] * self._end + [(0.0 if within else time_s, time_s)],
            method="highs",
        )
        if found.status != 0:
            raise SolverError(f"no plan takes {time_s:.9g} s: {found.message}")
        return float(found.fun)

    def _row(self, rows: list[int], columns: list[int], values: list[float], row: int, node: int) -> None:
        """When a node ends: its start, and its options' durations by their shares."""
        shares = self._shares[node]
        rows += [row] * (len(shares) + 1)
        columns += [*shares, self._starts + node]
        values += [*self._time_s[node].tolist(), 1.0]
