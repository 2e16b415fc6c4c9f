"""Computations of an order that contain a wait for others, where a framework is known to wait there."""

from __future__ import annotations

from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Order

_BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT})


def first_forwards(order: Order) -> frozenset[Instruction]:
    """The first forward of every stage: gathered parameters are waited for there."""
    first: dict[int, Instruction] = {}
    for instruction in order:
        if instruction.kind is Kind.FORWARD:
            first.setdefault(instruction.stage, instruction)
    return frozenset(first.values())


def last_backwards(order: Order) -> frozenset[Instruction]:
    """The last backward of every stage, whole or split: hooks start the gradients' reduction there."""
    return frozenset({i.stage: i for i in order if i.kind in _BACKWARDS}.values())
