"""Several chunks of the model on every rank, in a loop: interleaved 1F1B, with zero bubble, breadth first."""

from __future__ import annotations

from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind


def interleaved(
    rank: int, *, ranks: int, microbatches: int, chunks: int, group: int | None = None
) -> Iterator[Instruction]:
    """Alternate forwards and backwards of chunks; chunk c of a rank is model stage ``c * ranks + rank``.

    ``group`` microbatches (by default as many as there are ranks) pass one chunk before they pass the next.

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2; groups and warm-up as in
    megatron-core 0.16.1, ``get_schedule_table`` and ``get_pp_rank_microbatches``.
    """
    group = group or ranks
    steps = list(passes(microbatches, chunks, group))
    warm_up = min(2 * (ranks - rank - 1) + (chunks - 1) * group, len(steps))
    forwards = [Instruction(c * ranks + rank, Kind.FORWARD, m) for m, c in steps]
    backwards = [Instruction((chunks - 1 - c) * ranks + rank, Kind.BACKWARD, m) for m, c in steps]
    yield from forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        yield forward
        yield backward
    yield from backwards[len(steps) - warm_up :]


def passes(microbatches: int, chunks: int, group: int) -> Iterator[tuple[int, int]]:
    """Yield microbatch and chunk of a rank's n-th forward: group after group, chunk after chunk."""
    for first in range(0, microbatches, group):
        for chunk in range(chunks):
            for microbatch in range(first, min(first + group, microbatches)):
                yield microbatch, chunk


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


def looped_bfs(rank: int, *, ranks: int, microbatches: int, chunks: int) -> Iterator[Instruction]:
    """Run a chunk's forwards in a row and its backwards in a row, reversed.

    Source: Lamy-Poirier 2022 (arXiv 2211.05953), as in torch 2.13's ``ScheduleLoopedBFS``.
    """
    stages = range(rank, ranks * chunks, ranks)
    for stage in stages:
        for microbatch in range(microbatches):
            yield Instruction(stage, Kind.FORWARD, microbatch)
    for stage in reversed(stages):
        for microbatch in reversed(range(microbatches)):
            yield Instruction(stage, Kind.BACKWARD, microbatch)
