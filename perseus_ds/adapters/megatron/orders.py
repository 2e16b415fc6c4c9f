"""Megatron's instruction orders in our words; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Instruction, Kind, Order, first_forwards, last_backwards, textbook


def order_of(
    rank: int, *, ranks: int, microbatches: int, chunks: int = 1, group: int | None = None, reduces: bool
) -> Order:
    """What one pipeline rank runs: 1F1B, or interleaved 1F1B where it holds several chunks.

    Chunk c of a rank is model stage ``c * ranks + rank``. The reduction is one instruction of the rank, where
    its model ``reduces``, and the step is what lies between two passes.
    """
    name, stages = ("interleaved", ranks * chunks) if chunks > 1 else ("1f1b", ranks)
    book = textbook(name, stages=stages, microbatches=microbatches, chunks=chunks, group=group)
    tail = (Kind.REDUCE_GRADS, Kind.STEP) if reduces else (Kind.STEP,)
    return (*book.orders[rank], *(Instruction(rank, kind, 0) for kind in tail))


def check_table(table: Sequence[tuple[int, int]], order: Order, *, ranks: int, chunks: int) -> None:
    """Compare our passes with Megatron's own table of (microbatch, chunk).

    Raises:
        UnsupportedEngineError: this release runs another order.
    """
    forwards = [(i.microbatch, i.stage // ranks) for i in order if i.kind is Kind.FORWARD]
    backwards = [(i.microbatch, chunks - 1 - i.stage // ranks) for i in order if i.kind is Kind.BACKWARD]
    if not forwards == backwards == [tuple(row) for row in table]:
        raise UnsupportedEngineError(
            "get_schedule_table of this megatron-core gives another interleaved order than ours",
            hint="train without virtual pipeline stages, or without perseus_ds",
        )


def left_out_of(order: Order, reducing: Iterable[object]) -> frozenset[Instruction]:
    """What contains a wait for other replicas: forwards that wait for parameters, backwards that reduce.

    ``reducing`` are Megatron's data-parallel modules, whose ``ddp_config`` states what they overlap.
    """
    overlaps = [getattr(one, "ddp_config", None) for one in reducing]
    gathers = any(getattr(one, "overlap_param_gather", False) for one in overlaps)
    reduces = any(getattr(one, "overlap_grad_reduce", False) for one in overlaps)
    return frozenset(
        (first_forwards(order) if gathers else frozenset())
        | (last_backwards(order) if reduces else frozenset())
    )
