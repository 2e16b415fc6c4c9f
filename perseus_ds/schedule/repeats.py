"""Transfers that come several times for one microbatch: which of them brings the data that is used next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Order, Schedule

_BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT})
_CHANNELS = (
    (Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, +1, frozenset({Kind.FORWARD})),
    (Kind.SEND_GRAD, Kind.RECV_GRAD, -1, _BACKWARDS),
)
Names = dict[Instruction, Instruction]


def with_repeats_named(schedule: Schedule) -> Schedule:
    """Give every transfer beyond one per microbatch a number of its own, from ``microbatches`` on.

    Between two stages the n-th send meets the n-th receive. Some leave after a result is made and arrive
    before it is used; the first of them bears the microbatch's number. The others (a reference model's
    activations beside the trained one's, state) only make their ranks wait for each other. Stages whose
    transfers come once for each microbatch stay as they are.
    """
    names: Names = {}
    ranks = {i.stage: order for order in schedule.orders for i in order}
    for stage, order in ranks.items():
        for send, receive, step, kinds in _CHANNELS:
            sends = _of(order, stage, send)
            receives = _of(ranks.get(stage + step, ()), stage + step, receive)
            made = [i.microbatch for i in order if i.stage == stage and i.kind in kinds]
            if len(sends) == len(receives) > len(made):
                carrying = _carrying(order, ranks[stage + step], sends, receives, kinds)
                names |= _named(sends, receives, carrying, schedule.microbatches)
    orders = tuple(tuple(names.get(one, one) for one in order) for order in schedule.orders)
    return replace(schedule, orders=orders)


def _of(order: Order, stage: int, kind: Kind) -> Sequence[Instruction]:
    return [i for i in order if i.stage == stage and i.kind is kind]


def _carrying(
    here: Order,
    there: Order,
    sends: Sequence[Instruction],
    receives: Sequence[Instruction],
    kinds: frozenset[Kind],
) -> Mapping[int, int]:
    """Return which turn brings which microbatch's result over."""
    leaves, arrives = ({i: at for at, i in enumerate(order)} for order in (here, there))
    used = _computed(there, receives[0].stage, kinds)
    carrying: dict[int, int] = {}
    first = 0
    for microbatch, made_at in _computed(here, sends[0].stage, kinds).items():
        while first < len(sends) and leaves[sends[first]] < made_at:
            first += 1
        in_time = (
            turn
            for turn in range(first, len(sends))
            if turn not in carrying and arrives[receives[turn]] < used.get(microbatch, 0)
        )
        if (turn := next(in_time, None)) is not None:
            carrying[turn] = microbatch
    return carrying


def _computed(order: Order, stage: int, kinds: frozenset[Kind]) -> Mapping[int, int]:
    """Return the place of each microbatch's computation in the order."""
    return {i.microbatch: at for at, i in enumerate(order) if i.stage == stage and i.kind in kinds}


def _named(
    sends: Sequence[Instruction],
    receives: Sequence[Instruction],
    carrying: Mapping[int, int],
    microbatches: int,
) -> Iterator[tuple[Instruction, Instruction]]:
    beyond = microbatches
    for turn, ends in enumerate(zip(sends, receives, strict=True)):
        number = carrying.get(turn, beyond)
        beyond += turn not in carrying
        for end in ends:
            yield end, replace(end, microbatch=number)
