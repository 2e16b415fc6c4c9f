"""A stage on every rank: GPipe, 1F1B and ZB-H1."""

from __future__ import annotations

from collections import deque
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


def zero_bubble_h1(rank: int, *, ranks: int, microbatches: int) -> Iterator[Instruction]:
    """Owe ``rank`` weight gradients at most, and repay them, oldest first, while the pipeline drains.

    Backwards that leave the debt as it is stay whole.

    Source: Qi et al. 2023 (arXiv 2401.10241), section 2; as ``ZeroBubbleH1Pipeline`` in Megatron-DeepSpeed
    4efb479d without ``enable_zbh1_exact_semantics``.
    """
    order = _Debtor(rank)
    warm_up = min(ranks - rank - 1, microbatches)
    for microbatch in range(warm_up):
        yield Instruction(rank, Kind.FORWARD, microbatch)
    for forward in range(warm_up, microbatches):
        backward = forward - warm_up
        yield Instruction(rank, Kind.FORWARD, forward)
        if backward < rank:
            yield order.input_gradient(backward)
        elif rank > 0 and forward + 1 == microbatches:
            yield order.input_gradient(backward)
            yield order.oldest_weight_gradient()
        else:
            yield Instruction(rank, Kind.BACKWARD, backward)
    for backward in range(microbatches - warm_up, microbatches):
        if rank == 0:
            yield Instruction(rank, Kind.BACKWARD, backward)
        else:
            yield order.input_gradient(backward)
            yield order.oldest_weight_gradient()
    while order.owed:
        yield order.oldest_weight_gradient()


class _Debtor:
    """The weight gradients that one stage still owes."""

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self.owed: deque[int] = deque()

    def input_gradient(self, microbatch: int) -> Instruction:
        self.owed.append(microbatch)
        return Instruction(self._stage, Kind.BACKWARD_INPUT, microbatch)

    def oldest_weight_gradient(self) -> Instruction:
        return Instruction(self._stage, Kind.BACKWARD_WEIGHT, self.owed.popleft())
