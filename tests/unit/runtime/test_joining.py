"""What every rank said that it runs, joined."""

import pytest

from perseus_ds.errors import EngineError, ScheduleError
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.place import join_orders
from perseus_ds.schedule import textbook

ZBV = textbook("zbv", stages=4, microbatches=4)


def place(rank: int, replica: int, order: int) -> Place:
    return Place(rank, replica, ZBV.orders[order], {}, {}, "float32")


def test_replicas_that_run_the_same_make_one_schedule() -> None:
    places = [place(rank, replica, rank) for replica in range(2) for rank in range(2)]
    schedule = join_orders(places, name="zbv")
    assert schedule == ZBV


def test_replicas_that_run_different_orders_are_refused() -> None:
    with pytest.raises(EngineError, match="different schedules"):
        join_orders([place(0, 0, 0), place(1, 0, 1), place(0, 1, 1)], name="zbv")


def test_orders_that_cannot_run_together_are_refused() -> None:
    with pytest.raises(ScheduleError):
        join_orders([place(0, 0, 0), place(1, 0, 0)], name="zbv")
