"""Bare orders with their transfers written in, as an engine runs them that sends and receives in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from perseus_ds.schedule.data_flow import ENDS, data_flow
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Order, Schedule

_Ends = Mapping[Instruction, Instruction]


def with_rendezvous(schedule: Schedule) -> Schedule:
    """Send every result right after it is made, receive every input right before it is used, and wait.

    A send and the receive after it are one call, and wait for both, where a forward is followed by a backward
    or the reverse. Else the send is waited for first. What stays on its rank is not sent.

    Raises:
        InvalidScheduleError: a result that nobody makes or takes.
    Source: ``forward_backward_pipelining_without_interleaving`` of megatron-core 0.16.1.
    """
    ranks = schedule.rank_of_stages()
    crossing = [pair for pair in data_flow(schedule) if ranks[pair[0].stage] != ranks[pair[1].stage]]
    sends = {a: Instruction(a.stage, ENDS[a.kind][0], a.microbatch) for a, _ in crossing}
    receives = {b: Instruction(b.stage, ENDS[b.kind][1], b.microbatch) for _, b in crossing}
    orders = tuple(tuple(_written_in(order, sends, receives)) for order in schedule.orders)
    return replace(schedule, orders=orders)


def _written_in(order: Order, sends: _Ends, receives: _Ends) -> Iterator[Instruction]:
    home = min(i.stage for i in order)
    commits = (Instruction(home, Kind.COMMIT, number) for number in count())
    sent: Instruction | None = None
    for instruction in order:
        receive = receives.get(instruction)
        if sent and not (receive and _opposite(sent, instruction)):
            yield next(commits)
        if receive:
            yield from (receive, next(commits))
        yield instruction
        sent = instruction if instruction in sends else None
        if sent:
            yield sends[sent]
    if sent:
        yield next(commits)


def _opposite(before: Instruction, after: Instruction) -> bool:
    return (before.kind is Kind.FORWARD) != (after.kind is Kind.FORWARD)
