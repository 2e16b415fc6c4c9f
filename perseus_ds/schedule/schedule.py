"""Schedule: the order of instructions of every pipeline rank in one iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perseus_ds.schedule.instruction import Instruction, Kind

Order = tuple[Instruction, ...]
_BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT})


@dataclass(frozen=True, slots=True)
class Schedule:
    """All orders of one iteration, one per pipeline rank.

    The orders state which model stages a rank runs. Transfers that stand in them are rendezvous; orders
    without any hand their results over through buffers (`dag_of` shows both). ``unknown`` names the host's
    instructions that are carried as ``Kind.UNKNOWN``.
    """

    name: str
    microbatches: int
    orders: tuple[Order, ...]
    unknown: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of pipeline ranks: GPUs of one pipeline, its tensor-parallel peers counted as one."""
        return len(self.orders)

    @property
    def stages(self) -> int:
        """Number of model stages, all ranks together."""
        return 1 + max((i.stage for order in self.orders for i in order), default=-1)

    @property
    def stages_of_ranks(self) -> tuple[tuple[int, ...], ...]:
        """The model stages of every rank, lowest first."""
        return tuple(tuple(sorted({i.stage for i in order})) for order in self.orders)

    @property
    def has_chunks(self) -> bool:
        """Return whether a rank runs another model stage than its own number, or several."""
        return any(held != (rank,) for rank, held in enumerate(self.stages_of_ranks))

    def rank_of_stages(self) -> Mapping[int, int]:
        """Return which rank runs each model stage."""
        return {stage: rank for rank, held in enumerate(self.stages_of_ranks) for stage in held}

    def parts(self) -> dict[Instruction, Instruction]:
        """Return what runs each forward, each backward and all else: itself, or an ``FB`` of two of them."""
        return {part: i for order in self.orders for i in order for part in i.parts}


def first_forwards(order: Order) -> frozenset[Instruction]:
    """The first forward of every stage: gathered parameters are waited for there."""
    first: dict[int, Instruction] = {}
    for instruction in order:
        if instruction.kind.runs_forward:
            first.setdefault(instruction.stage, instruction)
    return frozenset(first.values())


def last_backwards(order: Order) -> frozenset[Instruction]:
    """The last backward of every stage, whole or split: hooks start the gradients' reduction there."""
    return frozenset({p.stage: i for i in order for p in i.parts if p.kind in _BACKWARDS}.values())
