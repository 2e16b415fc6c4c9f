"""Interleaved 1F1B: every rank holds several chunks of the model, and microbatches pass them in groups."""

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
