"""The engine's own instruction streams, in our words."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count

from perseus_ds.adapters.deepspeed.seam import KINDS, PipeSchedule, commands
from perseus_ds.schedule import Instruction, Kind, Order

_OF_THE_BUFFER = frozenset(
    {Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.SEND_ACTIVATION, Kind.SEND_GRAD, Kind.RECV_GRAD}
)
"""Kinds that work on the microbatch whose forward ran last in their buffer; all others go in turn."""

_OF_A_STAGE = _OF_THE_BUFFER | {Kind.FORWARD, Kind.BACKWARD_WEIGHT, Kind.RECV_ACTIVATION}
"""Kinds that work for one model stage; all others a rank does as a whole."""


def order_of(pipe_schedule: PipeSchedule, rank: int, *, without: Collection[Kind] = ()) -> Order:
    """Give every command of one rank its model stage and its microbatch.

    A rank runs stage ``rank``, and in phase 1 of DualPipe-V stage ``2 * ranks - 1 - rank``. The n-th forward
    of a stage is microbatch n. A backward is that of the forward in the same buffer, in whatever order they
    come. Weight gradients follow the input gradients first in, first out. ``without`` are kinds that do
    nothing on this rank.
    """
    mirrored = 2 * pipe_schedule.stages - 1 - rank
    order = [one for one in _numbered(pipe_schedule, rank, mirrored) if one.kind not in without]
    return tuple(_in_turn(order))


def unknown_of(pipe_schedule: PipeSchedule) -> tuple[str, ...]:
    """Name the instructions that we have no word for, in the order of their first turn."""
    names = dict.fromkeys(type(command).__name__ for command in commands(pipe_schedule))
    return tuple(name for name in names if name not in KINDS)


def _in_turn(order: Collection[Instruction]) -> Iterator[Instruction]:
    """Number transfers by their turn where there are more of them than forwards: some come twice."""
    counts = Counter((one.stage, one.kind) for one in order)
    turns: defaultdict[tuple[int, Kind], count[int]] = defaultdict(count)
    for one in order:
        repeated = one.kind.is_transfer and counts[one.stage, one.kind] > counts[one.stage, Kind.FORWARD]
        yield replace(one, microbatch=next(turns[one.stage, one.kind])) if repeated else one


def _numbered(pipe_schedule: PipeSchedule, rank: int, mirrored: int) -> Iterator[Instruction]:
    turns: Counter[tuple[int, Kind]] = Counter()
    held: dict[tuple[int, object], int] = {}
    weights: defaultdict[int, deque[int]] = defaultdict(deque)
    for command in commands(pipe_schedule):
        kind = KINDS.get(type(command).__name__, Kind.UNKNOWN)
        stage = mirrored if kind in _OF_A_STAGE and getattr(command, "phase", 0) == 1 else rank
        buffer = (stage, getattr(command, "buffer_id", None))
        number = turns[stage, kind]
        turns[stage, kind] += 1
        if kind is Kind.FORWARD:
            held[buffer] = number
        elif kind in _OF_THE_BUFFER:
            number = held.get(buffer, number)
        elif kind is Kind.BACKWARD_WEIGHT and weights[stage]:
            number = weights[stage].popleft()
        if kind is Kind.BACKWARD_INPUT:
            weights[stage].append(number)
        yield Instruction(stage, kind, number)
