"""How long a rank waits for the others while a plan runs."""

from __future__ import annotations

import pytest

from perseus_ds.runtime.comm.status import Patience


def after(*waits_s: float) -> float:
    patience = Patience()
    for wait_s in waits_s:
        patience.waited(wait_s)
    return patience.seconds


def test_where_numbers_are_always_there_silence_is_noticed_within_a_second() -> None:
    assert after() == after(*[0.001] * 100) == 0.8


def test_ranks_that_are_late_every_now_and_then_are_given_longer() -> None:
    assert after(0.3) == pytest.approx(1.2)
    assert after(1.5) == 2.0


def test_what_was_long_before_is_forgotten() -> None:
    assert after(1.5, *[0.0] * 300) == 0.8
