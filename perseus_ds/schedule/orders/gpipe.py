"""GPipe: all forwards, then all backwards, last in first out or first in first out."""

from __future__ import annotations

from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind


def gpipe(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Run the backwards in reverse.

    Source: Huang et al. 2019 (arXiv 1811.06965), figure 2.
    """
    del ranks
    for microbatch in range(microbatches):
        yield Instruction(rank, Kind.FORWARD, microbatch)
    for microbatch in reversed(range(microbatches)):
        yield Instruction(rank, Kind.BACKWARD, microbatch)


def gpipe_fifo(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Run the backwards in the order of the forwards.

    Source: torch.distributed.pipelining's ``ScheduleGPipe``, torch 2.13.
    """
    del ranks
    for microbatch in range(microbatches):
        yield Instruction(rank, Kind.FORWARD, microbatch)
    for microbatch in range(microbatches):
        yield Instruction(rank, Kind.BACKWARD, microbatch)
