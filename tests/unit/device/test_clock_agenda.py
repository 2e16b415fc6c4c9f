"""Requests by the moment that they are due: which is made, which gives way, and what is said of the late."""

from itertools import product

import pytest

from perseus_ds.device.clock_agenda import LATE_S, ClockAgenda, DatedClock, RequestCounts, overdue_s


@pytest.fixture
def agenda() -> ClockAgenda:
    return ClockAgenda()


def test_each_is_taken_when_it_is_due_and_of_those_overdue_the_newest(agenda: ClockAgenda) -> None:
    first, second = DatedClock(0.1, 900), DatedClock(0.2, 1000)
    agenda.put(first)
    agenda.put(second)
    assert [agenda.take(now_s) for now_s in (0.0, 0.1, 0.15, 0.2)] == [None, first, None, second]
    assert agenda.due_s is None
    assert agenda.counts.overtaken == 0
    for due_s, clock_mhz in ((0.1, 800), (0.2, 900), (0.3, 1000), (0.4, 1100)):
        agenda.put(DatedClock(due_s, clock_mhz))
    assert agenda.take(0.35) == DatedClock(0.3, 1000)
    assert (agenda.due_s, agenda.counts.overtaken) == (0.4, 2)


def test_a_newer_request_takes_the_turn_of_those_due_later(agenda: ClockAgenda) -> None:
    for due_s in (0.1, 0.3, 0.4):
        agenda.put(DatedClock(due_s, 1000))
    agenda.put(DatedClock(0.2, 900))
    assert agenda.take(0.1) == DatedClock(0.1, 1000)
    assert agenda.take(9.0) == DatedClock(0.2, 900)
    assert agenda.counts.overtaken == 0, "they gave way before their moment"


def test_what_gives_way_before_its_moment_has_missed_nothing(agenda: ClockAgenda) -> None:
    """One change at one moment; rest, and a clock on its way, for a later moment than that of a newer one."""
    for start_s, later_s, clock_mhz in product((1.0, 2.0, 3.0), (0.0, 0.01, 0.5), (None, 900)):
        agenda.put(DatedClock(start_s + later_s, clock_mhz))
        agenda.put(DatedClock(start_s, 1000))
        assert agenda.take(start_s) == DatedClock(start_s, 1000)
        agenda.counts.record_change()
    assert (agenda.counts.overtaken, agenda.counts.missed_note()) == (0, "")


def test_a_change_in_time_is_not_late_and_overdue_after_what_host_and_driver_take_anyway() -> None:
    counts = RequestCounts()
    for _ in range(100):
        counts.record_change(late_s=0.5 * LATE_S)
    assert (counts.changes, counts.late, counts.missed_note()) == (100, 0, "")
    assert not RequestCounts(changes=100, late=1).missed_note()
    counts = RequestCounts(changes=90, late=2, overtaken=10, longest_late_s=0.031)
    assert counts.missed == 0.12
    assert all(words in counts.missed_note() for words in ("12.0 %", "31 ms"))
    assert overdue_s(0.037) == pytest.approx(0.111)
    assert overdue_s(0.0036) == 0.05, "three latencies of a quick driver are less than a busy host's wake-up"
    assert overdue_s(0.037, slow_call_s=0.4) == 0.4
