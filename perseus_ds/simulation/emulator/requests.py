"""Which clocks a plan asks for, and when: in the kernel's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from perseus_ds.device import ClockChange
from perseus_ds.plan import OPENING, PlanSet, clock_requests, opening_clocks
from perseus_ds.plan.feedback.policy import ClockTable, tables_of
from perseus_ds.simulation.emulator.program import JobProgram
from perseus_ds.simulation.emulator.records import Corrections, Ints, PlannedRequests

AT_END_S = float("inf")
AFTER_OPENING_S = 1e-6
"""An iteration opens with its clock; what is asked for then comes after it."""


class Wanted(NamedTuple):
    """A clock asked for some time after a computation's start; infinite: at its end; negative: after it."""

    offset_s: float
    clock_mhz: int


class PlanRequests(NamedTuple):
    """All that a plan asks for; ``opening_mhz`` by rank as an iteration begins, ``opening`` from then on."""

    of_node: Mapping[int, Sequence[Wanted]]
    opening_mhz: Sequence[int]
    opening: Mapping[int, Sequence[Wanted]]
    tables: Mapping[int, ClockTable] = MappingProxyType({})


def steady(clock_mhz: int, job: JobProgram) -> PlanRequests:
    """One clock for the whole iteration."""
    return PlanRequests({}, [clock_mhz] * job.ranks, {})


def requests_of(
    plans: PlanSet, plan: int, job: JobProgram, *, change: ClockChange, on_pace: bool
) -> PlanRequests:
    """Ask as a job does: every clock ahead by its own latency."""
    place = {node: index for index, node in enumerate(job.nodes)}
    chosen = plans.plan(plan)
    of_node: dict[int, list[Wanted]] = {}
    opening_mhz: list[int] = []
    opening: dict[int, list[Wanted]] = {}
    of_table: dict[int, ClockTable] = {}
    for rank in range(job.ranks):
        own = [instruction for _, instruction in plans.computations_of(rank)]
        tables = tables_of(plans, rank, plan) if on_pace else None
        requests = clock_requests(chosen, rank, change, on_pace=on_pace, tables=tables)
        opening_mhz.append(opening_clocks(chosen, rank, requests, tables)[0])
        of_table |= {place[i]: table for i, table in zip(own, tables or (), strict=False)}
        for request in requests:
            offset_s = request.offset_s
            if request.position == OPENING:
                after_s = max(offset_s, AFTER_OPENING_S)
                opening.setdefault(rank, []).append(Wanted(after_s, request.clock_mhz))
                continue
            if request.over:
                offset_s = -offset_s if offset_s else AT_END_S
            asked = of_node.setdefault(place[own[request.position]], [])
            asked.append(Wanted(offset_s, request.clock_mhz))
    return PlanRequests(of_node, opening_mhz, opening, of_table)


def packed(plans: Sequence[PlanRequests], job: JobProgram, clocks_mhz: Ints) -> PlannedRequests:
    """Put several plans' requests into arrays; clocks become places in the grid."""
    place = {int(clock): index for index, clock in enumerate(clocks_mhz)}
    nodes = len(job.nodes)
    first = np.zeros((len(plans), nodes + job.ranks + 1), dtype=np.int64)
    offsets: list[float] = []
    clocks: list[int] = []
    for index, plan in enumerate(plans):
        wanted = [plan.of_node.get(node, ()) for node in range(nodes)]
        wanted += [plan.opening.get(rank, ()) for rank in range(job.ranks)]
        for row, asked in enumerate(wanted):
            first[index, row] = len(offsets)
            for offset_s, clock_mhz in asked:
                offsets.append(offset_s)
                clocks.append(place[clock_mhz])
        first[index, -1] = len(offsets)
    opening = np.array([[place[clock] for clock in plan.opening_mhz] for plan in plans], dtype=np.int64)
    return PlannedRequests(
        first,
        np.array(offsets, dtype=np.float64),
        np.array(clocks, dtype=np.int64),
        opening,
        _corrections(plans, job, place),
    )


_NUMBERS = "begin_s", "beyond_s", "share", "sooner_s", "later_s", "most_late_s"


def _corrections(plans: Sequence[PlanRequests], job: JobProgram, place: Mapping[int, int]) -> Corrections:
    """Put several plans' tables into arrays."""
    nodes = len(job.nodes)
    first = np.zeros((len(plans), nodes + 1), dtype=np.int64)
    numbers = {name: np.zeros((len(plans), nodes)) for name in _NUMBERS}
    weights, own = np.zeros((len(plans), nodes, 2)), np.zeros((len(plans), nodes), np.int64)
    rows: list[tuple[float, float, float]] = []
    clocks: list[tuple[int, int]] = []
    for index, plan in enumerate(plans):
        for node in range(nodes):
            first[index, node] = len(clocks)
            if (table := plan.tables.get(node)) is not None:
                rows += zip([*table.above_s, AT_END_S], table.at_once_s, table.delay, strict=True)
                clocks += [(place[a], place[b]) for a, b in zip(table.first_mhz, table.then_mhz, strict=True)]
                for name, values in numbers.items():
                    values[index, node] = getattr(table, name)
                weights[index, node], own[index, node] = table.weights, place[table.own_mhz]
        first[index, -1] = len(clocks)
    above_s, at_once_s, delay = np.array(rows, dtype=np.float64).reshape(-1, 3).T.copy()
    first_clock, then_clock = np.array(clocks, dtype=np.int64).reshape(-1, 2).T.copy()
    return Corrections(
        first=first,
        above_s=above_s,
        at_once_s=at_once_s,
        delay=delay,
        first_clock=first_clock,
        then_clock=then_clock,
        **numbers,
        own=own,
        weights=weights,
        previous=_previous(job),
    )


def _previous(job: JobProgram) -> Ints:
    """The computation before on the same rank; nodes stand in each rank's running order.

    Shape: [nodes], -1 where none is.
    """
    previous, last = np.full(len(job.nodes), -1, dtype=np.int64), dict[int, int]()
    for node, (rank, row) in enumerate(zip(job.program.rank.tolist(), job.program.row.tolist(), strict=True)):
        if row >= 0:
            previous[node] = last.get(rank, -1)
            last[rank] = node
    return previous
