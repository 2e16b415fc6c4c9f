"""A plan file by another road: its times by networkx, its certified bounds by a linear program (HiGHS)."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray

from perseus_ds.errors import SolverError
from perseus_ds.plan.record import PlanSet
from perseus_ds.schedule import dag_of

_sparse: Any = scipy.sparse  # its stubs know no stacks of arrays
_linprog: Any = scipy.optimize.linprog
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
    fixed_s = {f"{stage}{kind.value}": time_s for (stage, kind), time_s in plans.fixed_s.items()}
    dag = dag_of(plans.schedule)
    graph, nodes = dag.to_networkx(), {str(node): node for node in dag.nodes}
    graph.add_edges_from([(name, _END) for name in nodes])  # the end follows everything
    for what, said_s, lasts_s in said:
        for before, _, edge in graph.edges(data=True):
            node = nodes[before]
            own_s = lasts_s[node] if node in lasts_s else fixed_s[f"{node.stage}{node.kind.value}"]
            edge["weight"] = own_s + (fixed_s[edge["transfer"]] if "transfer" in edge else 0.0)
        found_s = float(nx.dag_longest_path_length(graph))
        if not abs(said_s - found_s) <= _RELATIVE * found_s:
            raise SolverError(
                f"{what} states an iteration time of {said_s:.9g} s, its longest path is {found_s:.9g} s"
            )


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
        dag = dag_of(plans.schedule)
        time_s: list[NDArray[np.float64]] = []
        cost_j: list[NDArray[np.float64]] = []
        for key in ((node.stage, node.kind) for node in dag.nodes):
            own = plans.options.get(key)
            time_s.append(np.array([plans.fixed_s[key]]) if own is None else own.planned_s(plans.reserve_pct))
            cost_j.append(np.zeros(1) if own is None else own.cost_j(plans.blocking_power_w))
        nodes, counts = len(dag.nodes), [len(own) for own in time_s]
        at = np.repeat(np.arange(nodes), counts), np.arange(sum(counts))
        shape = nodes, sum(counts)
        self._cost_j = np.concatenate([*cost_j, np.zeros(nodes + 1)])
        shares = _sparse.csr_array((np.ones(sum(counts)), at), shape=shape)
        work_s = _sparse.csr_array((np.concatenate(time_s), at), shape=shape)
        starts, never = _sparse.csr_array(_sparse.identity(nodes)), _sparse.csr_array((nodes, 1))
        end = _sparse.csr_array(np.ones((nodes, 1)))
        before, after = np.array(dag.edges, np.int64).reshape(-1, 2).T
        follows = _sparse.hstack([work_s[before], starts[before] - starts[after], never[before]])
        self._ends_first = _sparse.vstack([follows, _sparse.hstack([work_s, starts, -end])])
        self._right = np.concatenate([-np.array(dag.delays_s(plans.fixed_s)), np.zeros(nodes)])
        self._whole = _sparse.hstack([shares, _sparse.csr_array((nodes, nodes + 1))])

    def least_j(self, time_s: float, *, within: bool, waiting_w: float = 0.0) -> float:
        """Return the least effective energy in ``time_s``; ``within``: with waiting, in any shorter time."""
        found = _linprog(
            np.append(self._cost_j[:-1], waiting_w),
            A_ub=self._ends_first,
            b_ub=self._right,
            A_eq=self._whole,
            b_eq=np.ones(self._whole.shape[0]),
            bounds=[(0, None)] * (len(self._cost_j) - 1) + [(0.0 if within else time_s, time_s)],
            method="highs",
        )
        if found.status != 0:
            raise SolverError(f"no plan takes {time_s:.9g} s: {found.message}")
        return float(found.fun)
