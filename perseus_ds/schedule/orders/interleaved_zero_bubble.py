"""Interleaved zero bubble (ZB1P): interleaved 1F1B with split backwards and half the warm-up."""

from __future__ import annotations

from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.orders.interleaved import passes


def interleaved_zero_bubble(
    rank: int, *, ranks: int, microbatches: int, chunks: int, group: int | None = None
) -> Iterator[Instruction]:
    """Follow every input gradient but the first ``rank`` by the oldest weight gradient that is owed.

    Source: Qi et al. 2023 (arXiv 2401.10241), as in torch 2.13's ``ScheduleInterleavedZeroBubble``.
    """
    group = group or ranks
    steps = list(passes(microbatches, chunks, group))
    warm_up = min(ranks - rank - 1 + (chunks - 1) * group, len(steps))
    backwards = [((chunks - 1 - chunk) * ranks + rank, microbatch) for microbatch, chunk in steps]
    for microbatch, chunk in steps[:warm_up]:
        yield Instruction(chunk * ranks + rank, Kind.FORWARD, microbatch)
    for step, (stage, backward) in enumerate(backwards):
        if warm_up + step < len(steps):
            microbatch, chunk = steps[warm_up + step]
            yield Instruction(chunk * ranks + rank, Kind.FORWARD, microbatch)
        yield Instruction(stage, Kind.BACKWARD_INPUT, backward)
        if step >= rank:
            owed_stage, owed = backwards[step - rank]
            yield Instruction(owed_stage, Kind.BACKWARD_WEIGHT, owed)
    for stage, owed in backwards[max(0, len(backwards) - rank) :]:
        yield Instruction(stage, Kind.BACKWARD_WEIGHT, owed)
