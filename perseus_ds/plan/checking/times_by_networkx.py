"""Iteration times by another road: longest paths through the schedule's graph, found by networkx."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from perseus_ds.errors import CertificateError
from perseus_ds.plan.record import PlanSet
from perseus_ds.schedule import Instruction, dag_of

_RELATIVE = 1e-9  # sums of up to a million doubles
_END = "end"


def check_times_by_networkx(plans: PlanSet, indexes: list[int]) -> None:
    """Find the iteration time of some plans, T_min, and the baseline's time, from options and orders alone.

    Raises:
        CertificateError: a time that is another.
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
            raise CertificateError(
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
