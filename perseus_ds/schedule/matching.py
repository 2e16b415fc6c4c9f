"""Matching of observed instructions and transfers with the orders of a schedule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule.dag import CHANNELS, ENDS, data_flow
from perseus_ds.schedule.schedule import Instruction, Kind, Order, Schedule


def match_instructions(order: Order, kinds: Sequence[Kind]) -> tuple[Instruction, ...]:
    """Name what was observed: the n-th of a kind is the n-th of that kind in the order.

    What the order has not (and what comes more often than there) bears the rank's lowest stage. What has no
    place to be observed, such as a transfer within a call, may stand in the order all the same.

    Raises:
        ScheduleError: computations in another order, so that no name would be right.
    """
    computed = [kind for kind in kinds if kind.is_computation]
    expected = [instruction.kind for instruction in order if instruction.kind.is_computation]
    if expected and computed != expected:
        raise ScheduleError(
            f"a rank ran {_start(computed, expected)}; its order has {_start(expected, computed)}"
        )
    home = min((instruction.stage for instruction in order), default=0)
    waiting: defaultdict[Kind, count[int]] = defaultdict(count)
    named = {(instruction.kind, next(waiting[instruction.kind])): instruction for instruction in order}
    waiting.clear()
    places = [(kind, next(waiting[kind])) for kind in kinds]
    return tuple(named.get((kind, place), Instruction(home, kind, place)) for kind, place in places)


def _start(kinds: Sequence[Kind], others: Sequence[Kind]) -> str:
    """Write kinds up to a little after the first that differs from the others."""
    same = next((n for n, (a, b) in enumerate(zip(kinds, others, strict=False)) if a != b), len(others))
    shown = " ".join(kind.value for kind in kinds[max(0, same - 3) : same + 3])
    return f"{len(kinds)} computations, from number {max(0, same - 3)} on {shown or 'none'}"


# Transfers that come several times for one microbatch: which of them brings the data that is used next.

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
        for send, receive, step, kinds in CHANNELS:
            sends = [i for i in order if i.stage == stage and i.kind is send]
            receives = [
                i for i in ranks.get(stage + step, ()) if i.stage == stage + step and i.kind is receive
            ]
            made = [i for i in order if i.stage == stage and i.kind in kinds]
            if len(sends) == len(receives) > len(made):
                carrying = _microbatch_of_turn(order, ranks[stage + step], sends, receives, kinds)
                beyond = count(schedule.microbatches)
                for turn, ends in enumerate(zip(sends, receives, strict=True)):
                    number = carrying[turn] if turn in carrying else next(beyond)
                    names |= {end: replace(end, microbatch=number) for end in ends}
    orders = tuple(tuple(names.get(one, one) for one in order) for order in schedule.orders)
    return replace(schedule, orders=orders)


def _microbatch_of_turn(
    here: Order,
    there: Order,
    sends: Sequence[Instruction],
    receives: Sequence[Instruction],
    kinds: frozenset[Kind],
) -> Mapping[int, int]:
    """Return which turn brings which microbatch's result over."""
    leaves, arrives = ({i: at for at, i in enumerate(order)} for order in (here, there))
    used = _place_of_computation(there, receives[0].stage, kinds)
    carrying: dict[int, int] = {}
    first = 0
    for microbatch, made_at in _place_of_computation(here, sends[0].stage, kinds).items():
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


def _place_of_computation(order: Order, stage: int, kinds: frozenset[Kind]) -> Mapping[int, int]:
    return {i.microbatch: at for at, i in enumerate(order) if i.stage == stage and i.kind in kinds}


# Bare orders with their transfers written in, as an engine runs them that sends and receives in pairs.

_Ends = Mapping[Instruction, Instruction]


def with_rendezvous(schedule: Schedule) -> Schedule:
    """Send every result right after it is made, receive every input right before it is used, and wait.

    A send and the receive after it are one call, and wait for both, where a forward is followed by a backward
    or the reverse. Else the send is waited for first. What stays on its rank is not sent.

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
        is_turn = sent and (sent.kind is Kind.FORWARD) != (instruction.kind is Kind.FORWARD)
        if sent and not (receive and is_turn):
            yield next(commits)
        if receive:
            yield from (receive, next(commits))
        yield instruction
        sent = instruction if instruction in sends else None
        if sent:
            yield sends[sent]
    if sent:
        yield next(commits)
