"""The orders that all ranks reported, joined into the job's schedule."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.adapter import Place
from perseus_ds.schedule import Kind, Order, Schedule, validate, with_repeats_named


def joined(places: Iterable[Place], *, name: str) -> Schedule:
    """Join the orders of all ranks; replicas of one pipeline run the same.

    Transfers may come in any number for a microbatch, the n-th of a stage's kind with number n.

    Raises:
        UnsupportedEngineError: ranks of one place in the pipeline that run different orders.
        InvalidScheduleError: orders that cannot run to their end.
    """
    orders: dict[int, Order] = {}
    unknown: dict[str, None] = {}
    for place in places:
        if orders.setdefault(place.pipeline_rank, place.order) != place.order:
            raise UnsupportedEngineError(
                f"the ranks of stage {place.pipeline_rank} run different schedules",
                hint="every replica has to run the same one",
            )
        unknown |= dict.fromkeys(place.unknown)
    ordered = tuple(orders[rank] for rank in sorted(orders))
    microbatches = 1 + max((i.microbatch for i in chain(*ordered) if i.kind is Kind.FORWARD), default=0)
    schedule = with_repeats_named(Schedule(name, microbatches, ordered, tuple(unknown)))
    validate(schedule)
    return schedule
