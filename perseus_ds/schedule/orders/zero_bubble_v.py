"""ZBV: two chunks per rank, laid out as a V, with split backwards and no bubble if F, I, W are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind

F, I, W = Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741 - the field's letters


def zero_bubble_v(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Fill the V, alternate both arms, drain; an order made for more microbatches leaves those out.

    Source: Qi et al. 2023 (arXiv 2401.10241), section 6, as in torch 2.13's ``ScheduleZBVZeroBubble``.
    """
    down, up = rank, 2 * ranks - 1 - rank
    done: Counter[tuple[int, Kind]] = Counter()
    for stage, kind in _steps(rank, ranks, max(2 * ranks - 1, microbatches), down, up):
        microbatch = done[stage, kind]
        done[stage, kind] += 1
        if microbatch < microbatches:
            yield Instruction(stage, kind, microbatch)


def _steps(rank: int, ranks: int, microbatches: int, down: int, up: int) -> Iterator[tuple[int, Kind]]:
    ahead = ranks - rank
    yield from [(down, F)] * (2 * ahead - 1)
    yield from [(up, F), (down, F)] * rank
    yield from [(up, F), (up, I), (up, W)] * ahead
    more = microbatches - (2 * ahead - 1 + rank)
    yield from [(down, F), (down, I), (down, W), (up, F), (up, I), (up, W)] * more
    drained = microbatches - ranks - more  # forwards that the upper chunk still owes
    yield from [(down, I), (down, W), (up, F), (up, I), (up, W)] * drained
    yield from [(down, I), (up, I)] * rank
    yield from [(down, I), (down, W)] * ahead
    yield from [(up, W)] * rank
    yield from [(down, W)] * rank
