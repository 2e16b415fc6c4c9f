"""What every baseline is given: one pipeline with the measured options of each computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from baselines.graph import Graph, ends, graph_of
from perseus_ds.profile import Computation, Profile
from perseus_ds.schedule import Instruction, Schedule, dag_of, validate

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
