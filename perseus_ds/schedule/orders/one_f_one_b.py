"""1F1B: fill the pipeline with forwards, then alternate, then drain the backwards."""

from __future__ import annotations

from collections.abc import Iterator

from perseus_ds.schedule.instruction import Instruction, Kind


def one_f_one_b(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Hold no more microbatches than there are ranks ahead.

    Source: PipeDream-Flush, Narayanan et al. 2021 (arXiv 2006.09503).
    """
    warm_up = min(ranks - rank - 1, microbatches)
    for microbatch in range(warm_up):
        yield Instruction(rank, Kind.FORWARD, microbatch)
    for microbatch in range(microbatches - warm_up):
        yield Instruction(rank, Kind.FORWARD, warm_up + microbatch)
        yield Instruction(rank, Kind.BACKWARD, microbatch)
    for microbatch in range(microbatches - warm_up, microbatches):
        yield Instruction(rank, Kind.BACKWARD, microbatch)
