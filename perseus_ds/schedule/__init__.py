"""What runs after what: instructions, orders, and the graph of one iteration. Pure."""

from perseus_ds.schedule.dag import Dag, by_stage, dag_of
from perseus_ds.schedule.grid import grid, order_grid
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.order import ORDERS, Order, Schedule, gpipe, one_f_one_b, textbook
from perseus_ds.schedule.validate import validate

__all__ = [
    "ORDERS",
    "Dag",
    "Instruction",
    "Kind",
    "Order",
    "Schedule",
    "by_stage",
    "dag_of",
    "gpipe",
    "grid",
    "one_f_one_b",
    "order_grid",
    "textbook",
    "validate",
]
