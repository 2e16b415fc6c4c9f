"""Joining the orders of all ranks into one graph: running order, transfers, and the data between stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.dag import Dag
from perseus_ds.schedule.data_flow import handovers
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Order, Schedule

Pair = tuple[Instruction, Instruction]
_SENDER = {
    Kind.RECV_ACTIVATION: (Kind.SEND_ACTIVATION, -1),
    Kind.RECV_GRAD: (Kind.SEND_GRAD, +1),
}
_SENDS = frozenset(kind for kind, _ in _SENDER.values())


@lru_cache(maxsize=4)
def dag_of(schedule: Schedule) -> Dag:
    """Join the orders of all ranks into one graph; the last few are kept, as one is asked for many times.

    A transfer that stands in the orders is one node, named after its sender. Both ends wait for each other
    (gloo always, NCCL for all but small messages). So what follows it on either rank follows what came before
    it on both. Transfers queued for a ``COMMIT`` are posted by it together and each waits for its own other
    end. In orders without transfers the data of neighbouring stages is handed over through
    buffers: nobody waits to send. A tied reduction is one node for all stages that take part.

    Raises:
        InvalidScheduleError: an instruction without its other end, its input or a rank of its own.
    """
    node_of = _nodes(schedule)
    nodes = tuple(dict.fromkeys(node_of.values()))
    position = {node: index for index, node in enumerate(nodes)}
    in_order = [(node_of[a], node_of[b]) for order in schedule.orders for a, b in _running(order)]
    direct, buffered = handovers(schedule)
    edges = dict.fromkeys((position[a], position[b]) for a, b in [*in_order, *direct, *buffered])
    delayed = {(position[a], position[b]): send for (a, b), send in buffered.items()}
    return Dag(nodes, tuple(edges), delayed)


def _running(order: Order) -> Iterator[Pair]:
    """What follows what on one rank: the next in line, but transfers only what they were queued behind."""
    if not any(i.kind is Kind.COMMIT for i in order):
        yield from pairwise(order)
        return
    last: list[Instruction] = []
    queued: list[Instruction] = []
    for instruction in order:
        if instruction.kind.is_transfer:
            queued.append(instruction)
            continue
        yield from ((before, instruction) for before in last)
        if instruction.kind is Kind.COMMIT:
            yield from ((before, transfer) for before in last for transfer in queued)
            yield from ((transfer, instruction) for transfer in queued)
            queued = []
        last = [instruction]
    for transfer in queued:
        raise InvalidScheduleError(f"{transfer} is queued, and no commit follows it")


def _nodes(schedule: Schedule) -> Mapping[Instruction, Instruction]:
    """Pair every instruction with the node that stands for it in the graph."""
    nodes = {i: _sender(i) or i for order in schedule.orders for i in order}
    _check_ends(nodes)
    reductions = [i for i in nodes if i.kind is Kind.REDUCE_TIED]
    tied = min((i.stage for i in reductions), default=0)
    return nodes | {i: Instruction(tied, i.kind, i.microbatch) for i in reductions}


def _check_ends(nodes: Mapping[Instruction, Instruction]) -> None:
    """Refuse a transfer of which one end is missing."""
    received = {node for instruction, node in nodes.items() if instruction is not node}
    for instruction, node in nodes.items():
        if node not in nodes:
            raise InvalidScheduleError(f"{instruction} waits for {node}, which no stage runs")
        if instruction.kind in _SENDS and instruction not in received:
            raise InvalidScheduleError(f"{instruction} waits for ever: no stage receives it")


def _sender(instruction: Instruction) -> Instruction | None:
    """Return the other end of what a receive waits for."""
    if instruction.kind not in _SENDER:
        return None
    kind, step = _SENDER[instruction.kind]
    return Instruction(instruction.stage + step, kind, instruction.microbatch)
