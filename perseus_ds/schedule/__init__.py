"""What runs after what: instructions, orders, and the graph of one iteration. Pure."""

from perseus_ds.schedule.dag import Dag
from perseus_ds.schedule.grid import grid, order_grid
from perseus_ds.schedule.heard import heard
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.join import dag_of
from perseus_ds.schedule.load import Load, mean_load
from perseus_ds.schedule.orders import TEXTBOOK, textbook
from perseus_ds.schedule.rendezvous import with_rendezvous
from perseus_ds.schedule.repeats import with_repeats_named
from perseus_ds.schedule.schedule import Order, Schedule, first_forwards, last_backwards
from perseus_ds.schedule.validate import validate

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
    "grid",
    "heard",
    "last_backwards",
    "mean_load",
    "order_grid",
    "textbook",
    "validate",
    "with_rendezvous",
    "with_repeats_named",
]
