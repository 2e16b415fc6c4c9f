"""What torch's schedules run, in our words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perseus_ds.adapters.pipelining.seam import Action
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Instruction, Kind, Order, textbook

KINDS: Mapping[str, Kind] = {
    "FORWARD": Kind.FORWARD,
    "FULL_BACKWARD": Kind.BACKWARD,
    "BACKWARD_INPUT": Kind.BACKWARD_INPUT,
    "BACKWARD_WEIGHT": Kind.BACKWARD_WEIGHT,
    "REDUCE_GRAD": Kind.REDUCE_GRADS,
}
"""torch's computation types and our words for them."""

BETWEEN = frozenset({"SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD"})
"""Types that are waited for outside of all that we run around: transfers are buffered."""

SINGLE = {"Schedule1F1B": "1f1b", "ScheduleGPipe": "gpipe-fifo"}
"""Schedules of one stage per rank run code of their own: what torch writes down of 1F1B is not what it runs.

Source: ``Schedule1F1B._get_pipeline_order`` of torch 2.13.0, whose last rank begins with microbatch 1.
"""


def written_order(actions: Iterable[Action], *, reduces: bool) -> Order:
    """Read one rank's order off torch's own representation.

    ``reduces`` is whether ``REDUCE_GRAD`` waits for anybody.

    Raises:
        UnsupportedEngineError: an instruction that we do not know.
    """
    kinds = {name: kind for name, kind in KINDS.items() if reduces or kind is not Kind.REDUCE_GRADS}
    return _with_step([_named(one, kinds[name]) for one, name in _flat(actions) if name in kinds])


def single_order(names: Iterable[str], *, rank: int, ranks: int, microbatches: int, reduces: bool) -> Order:
    """Derive the order of a schedule with one stage per rank from the names of its classes.

    Raises:
        UnsupportedEngineError: the user's own class, of which nobody can state what it runs.
    """
    names = list(names)
    known = next((SINGLE[name] for name in names if name in SINGLE), None)
    if known is None:
        raise UnsupportedEngineError(
            f"{names[0]} runs one stage per rank in an order that is written down nowhere",
            hint=f"known: {', '.join(SINGLE)}, and every schedule with pipeline_order_with_comms",
        )
    order = list(textbook(known, stages=ranks, microbatches=microbatches).orders[rank])
    return _with_step([*order, Instruction(rank, Kind.REDUCE_GRADS, 0)] if reduces else order)


def _with_step(order: Sequence[Instruction]) -> Order:
    """Add what comes between two calls of ``step``: the optimizer."""
    return (*order, Instruction(min(i.stage for i in order), Kind.STEP, 0))


def _named(action: Action, kind: Kind) -> Instruction:
    return Instruction(action.stage_index, kind, action.microbatch_index or 0)


def _flat(actions: Iterable[Action]) -> Iterator[tuple[Action, str]]:
    """Take overlapped pairs apart: without a custom function torch runs them one after the other."""
    for action in actions:
        name = action.computation_type.name
        if name == "OVERLAP_F_B":
            yield from _flat(action.sub_actions or ())
        elif name in KINDS or name in BETWEEN:
            yield action, name
        else:
            raise UnsupportedEngineError(f"the schedule has an action {name} that we do not know")
