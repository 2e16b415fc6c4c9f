"""Schedules: instructions, orders, and the graph of one iteration. Pure."""

from perseus_ds.schedule.dag import Dag, dag_of
from perseus_ds.schedule.matching import match_instructions, with_rendezvous, with_repeats_named
from perseus_ds.schedule.schedule import (
    Instruction,
    Kind,
    Load,
    Order,
    Schedule,
    first_forwards,
    last_backwards,
)
from perseus_ds.schedule.textbook import TEXTBOOK, textbook
from perseus_ds.schedule.validate import order_grid, validate

__all__ = [
    "TEXTBOOK",
    "Dag",
    "Instruction",
    "Kind",
    "Load",
    "Order",
    "Schedule",
    "dag_of",
    "first_forwards",
    "last_backwards",
    "match_instructions",
    "order_grid",
    "textbook",
    "validate",
    "with_rendezvous",
    "with_repeats_named",
]
