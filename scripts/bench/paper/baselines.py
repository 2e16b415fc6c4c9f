"""What others do with the same measurements, each from its paper's description, priced alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError
from perseus_ds.profile.records import Computation, Profile
from perseus_ds.schedule import Dag, Instruction, Kind, Schedule, dag_of, validate
from perseus_ds.solver.compiled import compiled

# A schedule's graph as arrays, and the longest paths through it: compiled, for many passes.

Indices = NDArray[np.int64]


class Graph(NamedTuple):
    """What must end before each node starts, how long before, and an order in which all can run.

    Shape: ``order`` [nodes]; ``first`` [nodes + 1] are the bounds of each node's part of ``before`` and
    ``delay`` [edges].
    """

    order: Indices
    first: Indices
    before: Indices
    delay: NDArray[np.float64]

    @property
    def after(self) -> Indices:
        """The node that waits, of every edge."""
        return np.repeat(np.arange(len(self.order)), np.diff(self.first))


def graph_of(dag: Dag, fixed_s: Mapping[tuple[int, Kind], float]) -> Graph:
    """Pack the edges by the node that waits.

    Units: ``delay`` as ``fixed_s``, the durations of buffered transfers.

    Raises:
        ScheduleError: some instructions wait for each other.
    """
    edges = np.array(dag.edges, dtype=np.int64).reshape(-1, 2)
    packed = np.argsort(edges[:, 1], kind="stable")
    first = np.searchsorted(edges[packed, 1], np.arange(len(dag.nodes) + 1))
    return Graph(
        order=np.array(dag.topological(), dtype=np.int64),
        first=first,
        before=np.ascontiguousarray(edges[packed, 0]),
        delay=np.array(dag.delays_s(fixed_s), dtype=np.float64)[packed],
    )


@compiled
def ends(graph: Graph, duration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return when every node ends if none waits longer than it must.

    Units: those of ``duration``, one per node.
    """
    end = np.zeros(len(duration))
    for node in graph.order:
        start = 0.0
        for edge in range(graph.first[node], graph.first[node + 1]):
            start = max(start, end[graph.before[edge]] + graph.delay[edge])
        end[node] = start + duration[node]
    return end


@compiled
def latest_ends(graph: Graph, duration: NDArray[np.float64], until: float) -> NDArray[np.float64]:
    """Return when every node must have ended for all to end by ``until``."""
    latest = np.full(len(duration), until)
    for place in range(len(graph.order) - 1, -1, -1):
        node = graph.order[place]
        for edge in range(graph.first[node], graph.first[node + 1]):
            earlier = graph.before[edge]
            latest[earlier] = min(latest[earlier], latest[node] - duration[node] - graph.delay[edge])
    return latest


@compiled
def critical_path(graph: Graph, end: NDArray[np.float64]) -> Indices:
    """Return one longest path, last node first; of predecessors that end alike the first one."""
    path = [int(np.argmax(end))]
    while graph.first[path[-1]] < graph.first[path[-1] + 1]:
        last = graph.first[path[-1]]
        for edge in range(last + 1, graph.first[path[-1] + 1]):
            if end[graph.before[edge]] + graph.delay[edge] > end[graph.before[last]] + graph.delay[last]:
                last = edge
        path.append(int(graph.before[last]))
    return np.array(path)


# What every baseline is given: one pipeline with the measured options of each computation.

Choices = NDArray[np.int64]
"""Positions in each node's options; 0 where there is but one. Shape: [nodes] or [plans, nodes]."""


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Nodes in the order of the schedule's graph, each with its options, highest clock first.

    Rows of the tables are (stage, kind) pairs; short rows repeat their last option. What is not computed
    has one option that takes ``fixed_s`` and uses nothing beyond waiting.

    Units: MHz, seconds, joules, watts.
    Shape: ``nodes``, ``row`` [nodes]; ``options`` [rows]; ``clock_mhz``, ``time_s``, ``energy_j``
    [rows, options].
    """

    schedule: Schedule
    nodes: tuple[Instruction, ...]
    graph: Graph
    row: NDArray[np.int64]
    rows: tuple[Computation, ...]
    options: NDArray[np.int64]
    clock_mhz: NDArray[np.int64]
    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    blocking_power_w: float

    @property
    def computed(self) -> NDArray[np.bool_]:
        """Which nodes have a clock to be chosen."""
        return np.array([node.kind.is_computation for node in self.nodes])

    def durations_s(self, choice: Choices) -> NDArray[np.float64]:
        """Look the durations of one plan up."""
        durations: NDArray[np.float64] = self.time_s[self.row, choice]
        return durations

    def iteration_s(self, choice: Choices) -> float:
        """Return the longest path of one plan."""
        return float(ends(self.graph, self.durations_s(choice)).max())

    def effective_j(self, choice: Choices) -> float:
        """Return what the work of one plan takes beyond waiting: the sum of e - P_b t."""
        waiting_j = self.blocking_power_w * self.durations_s(choice)[self.computed].sum()
        return float(self.energy_j[self.row, choice].sum() - waiting_j)


def instance_of(profile: Profile, schedule: Schedule, *, blocking_power_w: float) -> Instance:
    """Look every node's options up.

    Raises:
        IncompleteProfileError: a stage of the schedule was not measured.
        ScheduleError: the schedule cannot run.
    """
    validate(schedule)
    dag = dag_of(schedule)
    rows = tuple(dict.fromkeys((node.stage, node.kind) for node in dag.nodes))
    tables = [_options(profile, row) for row in rows]
    most = max(map(len, tables))
    filled = np.array([[*table, *table[-1:] * (most - len(table))] for table in tables])
    number = {row: index for index, row in enumerate(rows)}
    return Instance(
        schedule=schedule,
        nodes=dag.nodes,
        graph=graph_of(dag, profile.fixed_s),
        row=np.array([number[node.stage, node.kind] for node in dag.nodes]),
        rows=rows,
        options=np.array(list(map(len, tables))),
        clock_mhz=filled[:, :, 0].astype(np.int64),
        time_s=np.ascontiguousarray(filled[:, :, 1]),
        energy_j=np.ascontiguousarray(filled[:, :, 2]),
        blocking_power_w=blocking_power_w,
    )


def _options(profile: Profile, row: Computation) -> list[tuple[float, float, float]]:
    stage, kind = row
    if not kind.is_computation:
        fixed: Mapping[Computation, float] = profile.fixed_s
        return [(0.0, fixed.get(row, 0.0), 0.0)]
    return [(point.clock_mhz, point.time_s, point.energy_j) for point in profile.of(stage, kind)]


# What plans cost: alone, and beside a straggler; the same accounting for every baseline and for ours.


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """Iteration time and effective energy (sum of e - P_b t) of plans of one pipeline.

    Shape: vectors [plans], in the order given.
    Source: arXiv 2312.06902, equations 3 and 4.
    """

    time_s: NDArray[np.float64]
    effective_j: NDArray[np.float64]
    blocking_total_w: float

    @property
    def energy_j(self) -> NDArray[np.float64]:
        """Total energy of one pipeline, each plan over its own iteration time."""
        return self.effective_j + self.blocking_total_w * self.time_s

    def beside_j(self, until_s: float, *, tolerance: float = 1e-9) -> float:
        """Total energy of the best plan that ends by ``until_s``, and waits for the rest of it.

        Raises:
            InfeasibleError: no plan ends by then.
        """
        fits = self.time_s <= until_s * (1.0 + tolerance)
        if not fits.any():
            raise InfeasibleError(
                f"no plan ends by {until_s:.6g} s: the fastest takes {self.time_s.min():.6g} s",
                hint="allow it more time",
            )
        return float(self.effective_j[fits].min() + self.blocking_total_w * until_s)


def price(instance: Instance, choices: Choices) -> Priced:
    """Run every plan once.

    Shape: ``choices`` [plans, nodes].

    Raises:
        ValueError: ``choices`` has another shape, as one plan without its row.
    """
    if choices.shape[1:] != (len(instance.nodes),):
        raise ValueError(f"choices has the shape {choices.shape}, expected [plans, nodes]: use choices[None]")
    return Priced(
        time_s=np.array([instance.iteration_s(choice) for choice in choices]),
        effective_j=np.array([instance.effective_j(choice) for choice in choices]),
        blocking_total_w=instance.blocking_power_w * instance.schedule.ranks,
    )


def saving_pct(before_j: float, after_j: float) -> float:
    """Return the part of ``before_j`` that is saved."""
    return 100.0 * (1.0 - after_j / before_j)


# All clocks at maximum: what an untouched job runs at.


def all_maximum(instance: Instance) -> Choices:
    """Choose the highest clock everywhere.

    Shape: [1, nodes].
    """
    return np.zeros((1, len(instance.nodes)), dtype=np.int64)


# EnvPipe: the pipeline's outer envelope at the highest clock, all else slow, and sped up until it fits.
#
# Source: Choi, Koo, Ahn, Jeon, Kwon, "EnvPipe: Performance-preserving DNN Training Framework for Saving
# Energy", USENIX ATC'23; its greedy step is three clocks of its grid and its balanced step one
# (casys-kaist/EnvPipe).
# Readings: 1F1B as it is (EnvPipe's own reordering of units is left out, as in the Perseus paper's
# comparison); "slow" is the clock of least energy; one critical path a step; it ends when the envelope is
# critical again.

_GREEDY_STEP = 3

Reconfigure = Callable[[Choices, NDArray[np.int64]], bool]
"""Speed some nodes of a path (last node first) up, in place; return whether any could be."""


def envelope(instance: Instance) -> Choices:
    """Slow everything inside the envelope down, whatever becomes of the iteration time.

    Shape: [1, nodes].
    """
    least = instance.energy_j.argmin(axis=1)
    choice: Choices = np.where(outside(instance), 0, least[instance.row])
    return choice[None, :]


def envpipe_greedy(instance: Instance) -> Choices:
    """From the end of the critical path, speed up the first unit that can be.

    Shape: [1, nodes].
    """
    return _reconfigured(instance, _greedy)


def envpipe_balanced(instance: Instance) -> Choices:
    """Along the critical path, speed up all units with its lowest clock.

    Shape: [1, nodes].
    """

    def balanced(choice: Choices, path: NDArray[np.int64]) -> bool:
        clock_mhz = instance.clock_mhz[instance.row[path], choice[path]]
        slow = path[(choice[path] > 0) & (clock_mhz == clock_mhz[choice[path] > 0].min(initial=1 << 30))]
        choice[slow] -= 1
        return len(slow) > 0

    return _reconfigured(instance, balanced)


def outside(instance: Instance) -> NDArray[np.bool_]:
    """Which nodes are the envelope: the last stage, every first forward, every last backward."""
    last_stage, last = instance.schedule.stages - 1, instance.schedule.microbatches - 1
    return np.array(
        [
            node.stage == last_stage
            or (node.kind is Kind.FORWARD and node.microbatch == 0)
            or (node.kind is Kind.BACKWARD and node.microbatch == last)
            or not node.kind.is_computation
            for node in instance.nodes
        ]
    )


def _reconfigured(instance: Instance, reconfigure: Reconfigure) -> Choices:
    choice, around = envelope(instance)[0], outside(instance)
    while True:
        path = critical_path(instance.graph, ends(instance.graph, instance.durations_s(choice)))
        if around[path].all() or not reconfigure(choice, path):
            return np.array([choice])


def _greedy(choice: Choices, path: NDArray[np.int64]) -> bool:
    for node in path:
        if choice[node] > 0:
            choice[node] = max(0, choice[node] - _GREEDY_STEP)
            return True
    return False


# One setting for all stages, or one per stage: the baselines that the Perseus paper draws from Zeus.
#
# Sources: You, Chung, Chowdhury, NSDI'23 (Zeus); arXiv 2312.06902, section 6.1 (ZeusGlobal, ZeusPerStage).
# Readings: profiles hold clocks and no power limits; under a limit each computation runs at the highest clock
# whose mean power does not exceed it, as a device under a limit does on average. Between two measured clocks
# nothing is interpolated.


def uniform_clock(instance: Instance) -> Choices:
    """Choose one clock for all stages; a plan per clock that all of them were measured at.

    Shape: [plans, nodes], highest clock first.
    """
    clocks = [set(instance.clock_mhz[row].tolist()) for row in _computed_rows(instance)]
    shared = sorted(set.intersection(*clocks), reverse=True)
    return np.array([_first(instance, instance.clock_mhz <= clock_mhz) for clock_mhz in shared])


def zeus_global(instance: Instance) -> Choices:
    """Choose one power limit for all stages; a plan per mean power that any computation has.

    Shape: [plans, nodes], highest limit first.
    """
    power_w = _power_w(instance)
    limits_w = np.unique(power_w[_computed_rows(instance)])[::-1]
    plans = np.array([_first(instance, power_w <= limit_w) for limit_w in limits_w])
    return np.unique(plans, axis=0)


def zeus_per_stage(instance: Instance) -> Choices:
    """Choose a clock per stage, so that all stages' forwards take alike.

    Every forward time of the slowest stage is a target; each stage takes its slowest clock that meets it.

    Shape: [plans, nodes], shortest target first.
    """
    forwards = {stage: row for row, (stage, kind) in enumerate(instance.rows) if kind is Kind.FORWARD}
    slowest = max(forwards.values(), key=lambda row: instance.time_s[row, 0])
    plans = []
    for target_s in np.unique(instance.time_s[slowest]):
        clock_mhz = {stage: _slowest_clock_mhz(instance, row, target_s) for stage, row in forwards.items()}
        limit = np.array([clock_mhz.get(stage, 0) for stage, _ in instance.rows])
        plans.append(_first(instance, instance.clock_mhz <= limit[:, None]))
    return np.array(plans)


def _slowest_clock_mhz(instance: Instance, row: int, target_s: float) -> int:
    fits = np.flatnonzero(instance.time_s[row] <= target_s)
    return int(instance.clock_mhz[row, fits].min()) if len(fits) else int(instance.clock_mhz[row, 0])


def _first(instance: Instance, allowed: NDArray[np.bool_]) -> Choices:
    """Every node's highest allowed clock; its lowest where none is."""
    chosen = np.where(allowed.any(axis=1), allowed.argmax(axis=1), instance.options - 1)
    choices: Choices = chosen[instance.row]
    return choices


def _power_w(instance: Instance) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(instance.time_s > 0.0, instance.energy_j / instance.time_s, 0.0)


def _computed_rows(instance: Instance) -> list[int]:
    return [row for row, (_, kind) in enumerate(instance.rows) if kind.is_computation]
