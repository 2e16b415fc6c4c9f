"""Which clocks a plan asks for, and when: in the kernel's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perseus_ds.plan import PlanSet
from perseus_ds.simulation.emulator.program import JobProgram
from perseus_ds.simulation.emulator.records import Ints, Requests

AT_END_S = float("inf")


class Wanted(NamedTuple):
    """A clock asked for some time after a computation's start, or at its end."""

    offset_s: float
    clock_mhz: int


class PlanRequests(NamedTuple):
    """All that one plan asks for; ``opening_mhz`` by rank as the iteration begins."""

    of_node: Mapping[int, Sequence[Wanted]]
    opening_mhz: Sequence[int]


def steady(clock_mhz: int, job: JobProgram) -> PlanRequests:
    """One clock for the whole iteration."""
    return PlanRequests({}, [clock_mhz] * job.ranks)


def requests_of(plans: PlanSet, plan: int, job: JobProgram, *, lead_s: float) -> PlanRequests:
    """Ask as a job does: for the next clock when a computation ends, for a higher one ``lead_s`` earlier."""
    place = {node: index for index, node in enumerate(job.nodes)}
    of_node: dict[int, list[Wanted]] = {}
    opening = []
    for rank in range(job.ranks):
        steps = [
            (instruction, plans.options[instruction.stage, instruction.kind], int(plans.choice[plan, column]))
            for column, instruction in plans.computations_of(rank)
        ]
        clocks = [int(options.clock_mhz[choice]) for _, options, choice in steps]
        opening.append(clocks[0])
        for index, (instruction, options, choice) in enumerate(steps):
            following = clocks[(index + 1) % len(steps)]
            asked = [Wanted(AT_END_S, following)]
            if following > clocks[index]:
                asked = [Wanted(max(float(options.time_s[choice]) - lead_s, 1e-6), following), *asked]
            of_node[place[instruction]] = asked
    return PlanRequests(of_node, opening)


def packed(plans: Sequence[PlanRequests], job: JobProgram, clocks_mhz: Ints) -> Requests:
    """Put several plans' requests into arrays; clocks become places in the grid."""
    place = {int(clock): index for index, clock in enumerate(clocks_mhz)}
    first = np.zeros((len(plans), len(job.nodes) + 1), dtype=np.int64)
    offsets: list[float] = []
    clocks: list[int] = []
    for index, plan in enumerate(plans):
        for node in range(len(job.nodes)):
            first[index, node] = len(offsets)
            for offset_s, clock_mhz in plan.of_node.get(node, ()):
                offsets.append(offset_s)
                clocks.append(place[clock_mhz])
        first[index, -1] = len(offsets)
    opening = np.array([[place[clock] for clock in plan.opening_mhz] for plan in plans], dtype=np.int64)
    return Requests(first, np.array(offsets, dtype=np.float64), np.array(clocks, dtype=np.int64), opening)
