"""Data flow between computations: in place, by a transfer, or through a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Order, Schedule

Pair = tuple[Instruction, Instruction]
BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT})
ENDS = {
    Kind.FORWARD: (Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION),
    Kind.BACKWARD: (Kind.SEND_GRAD, Kind.RECV_GRAD),
    Kind.BACKWARD_INPUT: (Kind.SEND_GRAD, Kind.RECV_GRAD),
}


def handovers(schedule: Schedule) -> tuple[list[Pair], Mapping[Pair, tuple[int, Kind]]]:
    """Return pairs (giver, taker) that order each other directly, and those with a buffer between them.

    An ``FB`` gives and takes what its forward and its backward do. Where both lead to the same ``FB``, the
    gradient's transfer stands for both, which are as large. Where ranks differ and transfers stand in the
    orders, those order giver and taker: nothing is returned.

    Raises:
        ScheduleError: a result that nobody brings over.
    """
    ranks, runs = schedule.rank_of_stages(), schedule.parts()
    ready = [_ready(order) for order in schedule.orders]
    streams = any(i.kind.is_transfer for i in chain(*schedule.orders))
    direct: list[Pair] = []
    buffered: dict[Pair, tuple[int, Kind]] = {}
    for giver, taker in data_flow(schedule):
        here, there = ranks[giver.stage], ranks[taker.stage]
        if here == there:
            direct.append((runs[giver], runs[taker]))
        elif streams:
            _check_brought(giver, taker, ready[here], ready[there])
        else:
            buffered[runs[giver], runs[taker]] = giver.stage, ENDS[giver.kind][0]
    return direct, buffered


def data_flow(schedule: Schedule) -> list[Pair]:
    """Pair every computation that has an input with the one that makes it, in a schedule that is complete.

    ``F(s) -> F(s + 1)``, the last stage's ``F`` to its backward, ``B`` or ``I`` of a stage to that of the
    stage before, ``I(s) -> W(s)``.
    """
    last, parts = schedule.stages - 1, schedule.parts()
    backward_of = {(part.stage, part.microbatch): part for part in parts if part.kind in BACKWARDS}
    inputs = ((_input_of(taker, last, backward_of), taker) for taker in parts)
    return [(maker, taker) for maker, taker in inputs if maker is not None]


def _input_of(
    taker: Instruction, last: int, backward_of: Mapping[tuple[int, int], Instruction]
) -> Instruction | None:
    stage, microbatch = taker.stage, taker.microbatch
    if taker.kind is Kind.FORWARD and stage > 0:
        return Instruction(stage - 1, Kind.FORWARD, microbatch)
    if taker.kind in BACKWARDS and stage == last:
        return Instruction(stage, Kind.FORWARD, microbatch)
    if taker.kind in BACKWARDS:
        return backward_of[stage + 1, microbatch]
    if taker.kind is Kind.BACKWARD_WEIGHT:
        return Instruction(stage, Kind.BACKWARD_INPUT, microbatch)
    return None


def _ready(order: Order) -> Mapping[Instruction, int]:
    """Return where in the order each instruction is over: a queued transfer at the next commit."""
    over = {part: place for place, instruction in enumerate(order) for part in instruction.parts}
    commits = [place for place, i in enumerate(order) if i.kind is Kind.COMMIT]
    for instruction, place in over.items() if commits else ():
        if instruction.kind.is_transfer:
            over[instruction] = next((commit for commit in commits if commit > place), len(order))
    return over


def _check_brought(
    giver: Instruction,
    taker: Instruction,
    here: Mapping[Instruction, int],
    there: Mapping[Instruction, int],
) -> None:
    """See that a transfer leaves after the giver and arrives before the taker."""
    send_kind, receive_kind = ENDS[giver.kind]
    send = Instruction(giver.stage, send_kind, giver.microbatch)
    receive = Instruction(taker.stage, receive_kind, taker.microbatch)
    if send not in here or here[send] < here[giver]:
        raise ScheduleError(f"{taker} waits for what {giver} makes, and no {send} after it sends it")
    if receive not in there or there[receive] > there[taker]:
        raise ScheduleError(f"{taker} waits for what {giver} makes, and no {receive} before it brings it")
