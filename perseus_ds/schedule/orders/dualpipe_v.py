"""DualPipe-V: two chunks per rank, laid out as a V; forwards of one run against backwards of the other."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741
Step = tuple[int, Kind]


def dualpipe_v(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Split the backwards that fill the bubble; needs 2 microbatches per rank.

    Source: https://github.com/deepseek-ai/DualPipe, as in torch 2.13's ``ScheduleDualPipeV``.
    """
    return _numbered(_steps(rank, ranks, microbatches, rank, 2 * ranks - 1 - rank))


def dualpipe_v_whole(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Keep every backward whole; needs 2 microbatches per rank.

    Source: DeepSpeed 0.19.8's ``DualPipeVSchedule``.
    """
    steps = _steps(rank, ranks, microbatches, rank, 2 * ranks - 1 - rank)
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


def _steps(rank: int, ranks: int, microbatches: int, down: int, up: int) -> Iterator[Step]:
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
