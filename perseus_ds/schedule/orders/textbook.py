"""The orders by name, and schedules of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.instruction import Instruction
from perseus_ds.schedule.orders.chunks import interleaved, interleaved_zero_bubble, looped_bfs
from perseus_ds.schedule.orders.one_stage import gpipe, gpipe_fifo, one_f_one_b, zero_bubble_h1
from perseus_ds.schedule.orders.v_shape import dualpipe_v, dualpipe_v_whole, zero_bubble_v
from perseus_ds.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Textbook:
    """An order and what it asks for: chunks per rank (None: any number), groups, microbatches per rank."""

    order: Callable[..., Iterator[Instruction]]
    chunks: int | None = 1
    grouped: bool = False
    microbatches_per_rank: int = 0


TEXTBOOK = {
    "1f1b": Textbook(one_f_one_b),
    "gpipe": Textbook(gpipe),
    "gpipe-fifo": Textbook(gpipe_fifo),
    "zb-h1": Textbook(zero_bubble_h1),
    "interleaved": Textbook(interleaved, chunks=None, grouped=True),
    "interleaved-zb": Textbook(interleaved_zero_bubble, chunks=None, grouped=True),
    "looped-bfs": Textbook(looped_bfs, chunks=None),
    "zbv": Textbook(zero_bubble_v, chunks=2),
    "dualpipe-v": Textbook(dualpipe_v, chunks=2, microbatches_per_rank=2),
    "dualpipe-v-whole": Textbook(dualpipe_v_whole, chunks=2, microbatches_per_rank=2),
}


def textbook(
    name: str, *, stages: int, microbatches: int, chunks: int | None = None, group: int | None = None
) -> Schedule:
    """Build a named schedule of ``stages`` model stages, ``chunks`` of them on every rank.

    ``chunks`` is 1, or 2 where the order has two arms, if not given. Interleaved orders take any number, and
    in how large a ``group`` microbatches pass a chunk.

    Raises:
        InvalidScheduleError: an unknown name, or sizes that make no such pipeline.
    """
    if name not in TEXTBOOK:
        raise InvalidScheduleError(f"schedule {name!r} is not known", hint=f"known: {', '.join(TEXTBOOK)}")
    if stages < 1 or microbatches < 1 or (group is not None and group < 1):
        raise InvalidScheduleError(
            f"{stages} stages and {microbatches} microbatches do not make a pipeline",
            hint="both are at least 1, as is a group",
        )
    book = TEXTBOOK[name]
    ranks = _ranks(name, book, stages, chunks)
    if microbatches < ranks * book.microbatches_per_rank:
        raise InvalidScheduleError(
            f"{name} on {ranks} ranks needs {ranks * book.microbatches_per_rank} microbatches,"
            f" got {microbatches}"
        )
    order = book.order if book.chunks else partial(book.order, chunks=stages // ranks)
    if book.grouped:
        order = partial(order, group=group)
    elif group is not None:
        raise InvalidScheduleError(f"{name} has no groups of microbatches", hint="leave the group out")
    orders = tuple(tuple(order(rank, ranks=ranks, microbatches=microbatches)) for rank in range(ranks))
    return Schedule(name, microbatches, orders)


def _ranks(name: str, book: Textbook, stages: int, chunks: int | None) -> int:
    """On how many ranks the stages lie."""
    wanted = chunks if chunks is not None else book.chunks or 1
    if wanted < 1 or wanted != (book.chunks or wanted):
        raise InvalidScheduleError(
            f"{name} with {wanted} chunks on every rank does not exist",
            hint=f"it has {book.chunks}" if book.chunks else "at least 1",
        )
    if stages % wanted:
        raise InvalidScheduleError(
            f"{stages} stages do not fill ranks of {wanted} chunks", hint="give a multiple"
        )
    return stages // wanted
