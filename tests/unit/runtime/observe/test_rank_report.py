"""What one rank enters in its books: each iteration by what it counts for, once the device has passed it."""

from __future__ import annotations

from unittest.mock import MagicMock

from perseus_ds.device.clock_agenda import RequestCounts
from perseus_ds.profile import Interval
from perseus_ds.runtime.accounting import Mode, RankBooks
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.schedule import Instruction, Kind, textbook

JOB = Job(0, 1, 0, 0, textbook("1f1b", stages=1, microbatches=1), {})


def iteration(index: int, *, lasts_s: float, resumed: bool = False, skipped: bool = False) -> Iteration:
    row = (Interval(Instruction(0, Kind.FORWARD, 0), 0.0, lasts_s),)
    return Iteration(index, 0.0, lasts_s, row, resumed=resumed, microbatches=1, skipped=skipped)


def books(*read_c: float) -> RankBooks:
    watch = MagicMock(watching=False, period_s=None, error=None)
    left_c = iter(read_c)
    watch.temperatures.mean_c.side_effect = lambda *_: next(left_c, None)
    return RankBooks(watch, sightings=tuple, overrun_share=lambda: 0.0, clock_requests=RequestCounts())


def test_what_ran_while_control_was_lost_counts_for_neither_side() -> None:
    """Nor what the device had not passed by then."""
    own = books()
    own.ran(0, Mode.PERSEUS, known=True)
    own.ran(1, Mode.PERSEUS, known=False)
    own.enter([iteration(0, lasts_s=5.0), iteration(1, lasts_s=5.0)])
    assert own.report(JOB).durations_s[Mode.PERSEUS] == []
    own.ran(2, Mode.PERSEUS, known=True)
    own.enter([iteration(2, lasts_s=1.0)])
    assert own.report(JOB).durations_s[Mode.PERSEUS] == [1.0]


def test_an_iteration_that_follows_something_else_counts_for_neither_side() -> None:
    own = books()
    for index, resumed in enumerate((True, False)):
        own.ran(index, Mode.BASELINE, known=True)
        own.enter([iteration(index, lasts_s=5.0 - 4.0 * (not resumed), resumed=resumed)])
    assert own.report(JOB).durations_s[Mode.BASELINE] == [1.0]
    own.ran(2, Mode.PERSEUS, known=True)
    own.enter([iteration(2, lasts_s=2.0)])
    own.forget_plan(JOB)
    assert own.report(JOB).durations_s == {Mode.BASELINE: [1.0], Mode.PERSEUS: []}


def test_each_sides_temperature_is_the_mean_over_its_iterations() -> None:
    own = books(50.0, 54.0, 99.0, 60.0)
    for index, mode in enumerate((Mode.BASELINE, Mode.BASELINE, Mode.NEITHER, Mode.PERSEUS)):
        own.ran(index, mode, known=True)
        own.enter([iteration(index, lasts_s=1.0)])
    assert own.report(JOB).temperature_c == {Mode.BASELINE: 52.0, Mode.NEITHER: 99.0, Mode.PERSEUS: 60.0}
    own.forget_plan(JOB)
    assert Mode.PERSEUS not in own.report(JOB).temperature_c


def test_one_whose_step_was_skipped_counts_for_neither_side_and_is_counted() -> None:
    own = books()
    for index, skipped in enumerate((False, True, False)):
        own.ran(index, Mode.PERSEUS, known=True)
        own.enter([iteration(index, lasts_s=1.0 - 0.5 * skipped, skipped=skipped)])
    report = own.report(JOB)
    assert report.durations_s[Mode.PERSEUS] == [1.0]
    assert report.skipped == 1
