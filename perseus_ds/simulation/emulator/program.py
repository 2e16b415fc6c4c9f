"""From a schedule to what the kernel runs: nodes up to the data-parallel reduction, and what follows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from perseus_ds.profile import Computation
from perseus_ds.schedule import Dag, Instruction, Kind, Schedule, dag_of
from perseus_ds.simulation.emulator.records import Floats, Program

_AFTER_ALL = frozenset({Kind.REDUCE_GRADS, Kind.STEP})


@dataclass(frozen=True, slots=True, eq=False)
class JobProgram:
    """What all pipelines run, with names.

    ``rows`` are the computations that rows of the tables stand for. ``by_rank``: each rank meets its peers of
    the other pipelines alone, for the reduction of its own gradients; else all ranks meet all others.
    ``reduction_s`` is what a rank does from there until the ranks of a pipeline meet for the norm of the
    gradients. ``step_s`` is what it does after that.

    Shape: ``nodes`` as in ``program``; ``reduction_s``, ``step_s`` [ranks].
    """

    program: Program
    nodes: tuple[Instruction, ...]
    rows: tuple[Computation, ...]
    reduction_s: Floats
    step_s: Floats
    by_rank: bool

    @property
    def ranks(self) -> int:
        """Pipeline ranks."""
        return len(self.step_s)


def job_program(schedule: Schedule, fixed_s: Mapping[Computation, float]) -> JobProgram:
    """Cut the graph where ranks meet their peers of other pipelines, and pack it.

    Raises:
        InvalidScheduleError: the schedule cannot run.
    """
    dag = dag_of(schedule)
    tails = [tuple(_tail(order)) for order in schedule.orders]
    cut = frozenset(chain(*tails))
    nodes = tuple(node for node in dag.nodes if node not in cut)
    rows = tuple(dict.fromkeys((n.stage, n.kind) for n in nodes if n.kind.is_computation))
    program = _program(dag, nodes, rows, _ranks(schedule), fixed_s)
    reduction_s, step_s = zip(*(_tail_s(tail, fixed_s) for tail in tails), strict=True)
    return JobProgram(program, nodes, rows, np.array(reduction_s), np.array(step_s), by_rank=any(tails))


def _program(
    dag: Dag,
    nodes: Sequence[Instruction],
    rows: Sequence[Computation],
    rank_of: Mapping[Instruction, int],
    fixed_s: Mapping[Computation, float],
) -> Program:
    """Pack the part of the graph between these nodes."""
    place = {node: index for index, node in enumerate(nodes)}
    ends = ((place.get(dag.nodes[before]), place.get(dag.nodes[after])) for before, after in dag.edges)
    edges = sorted(
        (before, after, delay_s)
        for (before, after), delay_s in zip(ends, dag.delays_s(fixed_s), strict=True)
        if before is not None and after is not None
    )
    before, after = np.ascontiguousarray(np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2).T)
    rank = np.array([rank_of[node] for node in nodes], dtype=np.int64)
    number = {row: index for index, row in enumerate(rows)}
    return Program(
        rank=rank,
        row=np.array([number.get((node.stage, node.kind), -1) for node in nodes], dtype=np.int64),
        fixed_s=np.array([_fixed_s(node, fixed_s) for node in nodes]),
        waits_for=np.bincount(after, minlength=len(nodes)).astype(np.int64),
        first=np.searchsorted(before, np.arange(len(nodes) + 1)).astype(np.int64),
        after=after,
        delay_s=np.array([edge[2] for edge in edges], dtype=np.float64),
        crosses=rank[before] != rank[after],
    )


def _tail_s(tail: Sequence[Instruction], fixed_s: Mapping[Computation, float]) -> tuple[float, float]:
    """How long a rank's last instructions take before its step, and from there on."""
    lasts_s = [_fixed_s(instruction, fixed_s) for instruction in tail]
    step = next((n for n, instruction in enumerate(tail) if instruction.kind is Kind.STEP), len(tail))
    return sum(lasts_s[:step]), sum(lasts_s[step:])


def _tail(order: tuple[Instruction, ...]) -> Iterator[Instruction]:
    """Yield an order's instructions from its reduction of gradients (or the step) on."""
    begun = False
    for instruction in order:
        begun = begun or instruction.kind in _AFTER_ALL
        if begun:
            yield instruction


def _ranks(schedule: Schedule) -> Mapping[Instruction, int]:
    """Which rank runs each instruction; one that stands for several ranks is its first one's."""
    ranks: dict[Instruction, int] = {}
    for rank, order in enumerate(schedule.orders):
        for instruction in order:
            ranks.setdefault(instruction, rank)
    return ranks


def _fixed_s(node: Instruction, fixed_s: Mapping[Computation, float]) -> float:
    return 0.0 if node.kind.is_computation else fixed_s.get((node.stage, node.kind), 0.0)
