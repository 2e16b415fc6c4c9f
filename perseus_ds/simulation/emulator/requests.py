"""Which clocks a plan asks for, and when: in the kernel's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perseus_ds.device import ClockChange
from perseus_ds.plan import OPENING, PlanSet, clock_requests, opening_clocks
from perseus_ds.simulation.emulator.program import JobProgram
from perseus_ds.simulation.emulator.records import Ints, PlannedRequests

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
    for rank in range(job.ranks):
        own = [instruction for _, instruction in plans.computations_of(rank)]
        requests = clock_requests(chosen, rank, change, on_pace=on_pace)
        opening_mhz.append(opening_clocks(chosen, rank, requests)[0])
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
    return PlanRequests(of_node, opening_mhz, opening)


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
    )
