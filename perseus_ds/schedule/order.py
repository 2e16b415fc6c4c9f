"""What each stage runs, in order: textbook schedules as generators of a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perseus_ds.errors import InvalidScheduleError
from perseus_ds.schedule.instruction import Instruction, Kind

Order = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """All orders of one iteration, one per stage."""

    name: str
    microbatches: int
    orders: tuple[Order, ...]

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return len(self.orders)


def one_f_one_b(stage: int, *, stages: int, microbatches: int) -> Iterator[Instruction]:
    """Fill the pipeline with forwards, then alternate, then drain the backwards.

    Source: PipeDream-Flush, Narayanan et al. 2021 (arXiv 2006.09503).
    """
    warm_up = min(stages - stage - 1, microbatches)
    for microbatch in range(warm_up):
        yield Instruction(stage, Kind.FORWARD, microbatch)
    for microbatch in range(microbatches - warm_up):
        yield Instruction(stage, Kind.FORWARD, warm_up + microbatch)
        yield Instruction(stage, Kind.BACKWARD, microbatch)
    for microbatch in range(microbatches - warm_up, microbatches):
        yield Instruction(stage, Kind.BACKWARD, microbatch)


def gpipe(stage: int, *, stages: int, microbatches: int) -> Iterator[Instruction]:
    """All forwards, then all backwards in reverse.

    Source: Huang et al. 2019 (arXiv 1811.06965), figure 2.
    """
    del stages
    for microbatch in range(microbatches):
        yield Instruction(stage, Kind.FORWARD, microbatch)
    for microbatch in reversed(range(microbatches)):
        yield Instruction(stage, Kind.BACKWARD, microbatch)


ORDERS: dict[str, Callable[..., Iterator[Instruction]]] = {"1f1b": one_f_one_b, "gpipe": gpipe}


def textbook(name: str, *, stages: int, microbatches: int) -> Schedule:
    """Build a named schedule.

    Raises:
        InvalidScheduleError: an unknown name, or sizes below 1.
    """
    if name not in ORDERS:
        raise InvalidScheduleError(f"schedule {name!r} is not known", hint=f"known: {', '.join(ORDERS)}")
    if stages < 1 or microbatches < 1:
        raise InvalidScheduleError(
            f"{stages} stages and {microbatches} microbatches do not make a pipeline",
            hint="both are at least 1",
        )
    order = ORDERS[name]
    orders = tuple(tuple(order(s, stages=stages, microbatches=microbatches)) for s in range(stages))
    return Schedule(name, microbatches, orders)
