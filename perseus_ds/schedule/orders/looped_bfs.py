"""Looped breadth first: all microbatches pass one chunk before any passes the next."""

from __future__ import annotations

from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind


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
