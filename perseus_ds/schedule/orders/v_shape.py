"""Two chunks on every rank, laid out as a V: ZBV and DualPipe-V."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741
Step = tuple[int, Kind]


def zero_bubble_v(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Fill the V, alternate both arms, drain; an order made for more microbatches leaves those out.

    Source: Qi et al. 2023 (arXiv 2401.10241), section 6, as in torch 2.13's ``ScheduleZBVZeroBubble``.
    """
    down, up = rank, 2 * ranks - 1 - rank
    done: Counter[Step] = Counter()
    for stage, kind in _zero_bubble_steps(rank, ranks, max(2 * ranks - 1, microbatches), down, up):
        microbatch = done[stage, kind]
        done[stage, kind] += 1
        if microbatch < microbatches:
            yield Instruction(stage, kind, microbatch)


def _zero_bubble_steps(rank: int, ranks: int, microbatches: int, down: int, up: int) -> Iterator[Step]:
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


def dualpipe_v(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Split the backwards that fill the bubble; needs 2 microbatches per rank.

    Source: https://github.com/deepseek-ai/DualPipe, as in torch 2.13's ``ScheduleDualPipeV``.
    """
    return _numbered(_dualpipe_steps(rank, ranks, microbatches, rank, 2 * ranks - 1 - rank))


def dualpipe_v_whole(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Keep every backward whole; needs 2 microbatches per rank.

    Source: DeepSpeed 0.19.8's ``DualPipeVSchedule``.
    """
    steps = _dualpipe_steps(rank, ranks, microbatches, rank, 2 * ranks - 1 - rank)
    return _numbered((stage, B if kind is I else kind) for stage, kind in steps if kind is not W)


def _numbered(steps: Iterator[Step]) -> Iterator[Instruction]:
    """Number the backwards of a stage alike, whole or split; repay weight gradients oldest first."""
    done: Counter[Step] = Counter()
    owed: deque[tuple[int, int]] = deque()
    for stage, kind in steps:
        if kind is W:
            if owed:
                late, microbatch = owed.popleft()
                yield Instruction(late, W, microbatch)
            continue
        way = stage, F if kind is F else B
        if kind is I:
            owed.append((stage, done[way]))
        yield Instruction(stage, kind, done[way])
        done[way] += 1


def _dualpipe_steps(rank: int, ranks: int, microbatches: int, down: int, up: int) -> Iterator[Step]:
    """The eight steps of the source; a ``W`` stands where one may be repaid."""
    behind = ranks - rank - 1
    yield from [(down, F)] * 2 * behind  # 1
    yield from [(down, F), (up, F)] * (rank + 1)  # 2
    yield from [(up, I), (up, W), (up, F)] * behind  # 3
    yield from [(down, F), (up, B), (up, F), (down, B)] * (microbatches - 2 * ranks + rank + 1)  # 4
    yield from [(up, B), (up, F), (down, B)] * behind  # 5
    for place in range(2 * (rank + 1)):  # 6: the second half is split
        yield (up, down)[place % 2], I if place > rank else B
    yield from [(up, W), (down, I)] * behind  # 7
    yield from [(up, W)] * (rank + 1)  # 8
