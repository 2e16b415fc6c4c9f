"""Schedules written as text, one string per stage."""

from perseus_ds.schedule import Instruction, Schedule


def schedule(*orders: str, microbatches: int) -> Schedule:
    parsed = tuple(tuple(map(Instruction.parse, order.split())) for order in orders)
    return Schedule("by hand", microbatches, parsed)
