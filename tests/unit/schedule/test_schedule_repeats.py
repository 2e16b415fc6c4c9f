"""Transfers that come twice for one microbatch: named by what they bring, the others for themselves."""

from __future__ import annotations

import pytest

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import Instruction, Schedule, textbook, validate, with_rendezvous, with_repeats_named


def named(*orders: str) -> list[str]:
    """Read orders, name their repeats, and see that they run."""
    read = tuple(tuple(map(Instruction.parse, order.split())) for order in orders)
    schedule = with_repeats_named(Schedule("two", 2, read))
    validate(schedule)
    return [" ".join(map(str, order)) for order in schedule.orders]


BACKWARDS = "0RG0 0B0 0RG1 0B1", "1B0 1SG0 1B1 1SG1"


def test_the_reference_first() -> None:
    assert named(
        f"0X0 0SA0 0F0 0SA1 0X1 0SA2 0F1 0SA3 {BACKWARDS[0]}",
        f"1RA0 1X0 1RA1 1F0 1RA2 1X1 1RA3 1F1 {BACKWARDS[1]}",
    ) == [
        f"0X0 0SA2 0F0 0SA0 0X1 0SA3 0F1 0SA1 {BACKWARDS[0]}",
        f"1RA2 1X0 1RA0 1F0 1RA3 1X1 1RA1 1F1 {BACKWARDS[1]}",
    ]


def test_the_reference_last() -> None:
    assert named(
        f"0F0 0SA0 0X0 0SA1 0F1 0SA2 0X1 0SA3 {BACKWARDS[0]}",
        f"1RA0 1F0 1RA1 1X0 1RA2 1F1 1RA3 1X1 {BACKWARDS[1]}",
    ) == [
        f"0F0 0SA0 0X0 0SA2 0F1 0SA1 0X1 0SA3 {BACKWARDS[0]}",
        f"1RA0 1F0 1RA2 1X0 1RA1 1F1 1RA3 1X1 {BACKWARDS[1]}",
    ]


def test_both_at_once() -> None:
    assert named(
        f"0F0 0SA0 0SA1 0F1 0SA2 0SA3 {BACKWARDS[0]}", f"1RA0 1RA1 1F0 1RA2 1RA3 1F1 {BACKWARDS[1]}"
    ) == [
        f"0F0 0SA0 0SA2 0F1 0SA1 0SA3 {BACKWARDS[0]}",
        f"1RA0 1RA2 1F0 1RA1 1RA3 1F1 {BACKWARDS[1]}",
    ]


def test_a_forward_that_nothing_is_brought_for_is_refused_still() -> None:
    with pytest.raises(ScheduleError, match="0F0"):
        named(f"0SA0 0SA1 0SA2 0SA3 0F0 0F1 {BACKWARDS[0]}", f"1RA0 1RA1 1RA2 1RA3 1F0 1F1 {BACKWARDS[1]}")


def test_one_transfer_each_stays_as_it_is() -> None:
    schedule = with_rendezvous(textbook("1f1b", stages=4, microbatches=6))
    assert with_repeats_named(schedule) == schedule
