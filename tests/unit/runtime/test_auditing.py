"""Lines on a measured saving: its error, its absence, and what an audit ends."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from schedules import two_plans

from perseus_ds.config import parse
from perseus_ds.plan import Expected
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, Spent, Summary
from perseus_ds.runtime.accounting import Mode, RankBooks, RankReport, Sample, Total
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.planned_run import Audits, contradiction, slower, too_slow, with_error


def report(overrun_share: float) -> RankReport:
    return RankReport(0, 0, 0, {}, Spent(), {}, overrun_share=overrun_share)


def test_a_host_that_cannot_keep_up_claims_nothing() -> None:
    assert too_slow([report(0.0), report(0.01)]) == ""
    assert "2.0 %" in too_slow([report(0.0), report(0.02)])


def measured(energy_j: float, *, predicted_pct: float, freedom: int = 20) -> Summary:
    sides = [MeasuredSide(1.0, one, 40, 0.001, 0.001 * one, freedom) for one in (1000.0, energy_j)]
    return Summary(sides[0], sides[1], True, predicted_pct)


def test_the_error_of_a_saving_is_that_of_the_ratio() -> None:
    summary = measured(800.0, predicted_pct=20.0)
    assert summary.saving_se_pct == pytest.approx(80.0 * 0.001 * 2**0.5)
    assert summary.saving_within_pct == pytest.approx(2.02 * 80.0 * 0.001 * 2**0.5, rel=0.01)


def test_a_contradiction_is_beyond_both_errors() -> None:
    assert contradiction(measured(800.0, predicted_pct=19.0), 1.0) == ""
    line = contradiction(measured(800.0, predicted_pct=15.0), 1.0)
    assert "points more" in line
    assert "points less" in contradiction(measured(900.0, predicted_pct=15.0), 1.0)


def test_pacing_by_loads_may_save_more_than_expected_and_no_less() -> None:
    assert contradiction(measured(800.0, predicted_pct=15.0), 1.0, paced=True) == ""
    assert "points less" in contradiction(measured(900.0, predicted_pct=15.0), 1.0, paced=True)


def test_nothing_contradicts_without_an_error() -> None:
    sides = MeasuredSide(1.0, 1000.0, 2), MeasuredSide(1.0, 800.0, 2)
    summary = Summary(*sides, True, 90.0)
    assert summary.saving_se_pct is None
    assert contradiction(summary, 1.0) == ""


def test_a_figure_is_written_with_its_error() -> None:
    assert with_error(18.46, 0.31, decimals=1).split(" +- ") == ["18.5", "0.3 %"]
    assert with_error(-0.001, 0.02, signed=True).split(" +- ") == ["+0.00", "0.02 %"]
    assert with_error(18.46, None, decimals=1) == "18.5 %"


def lasting(slowdown_pct: float, *, se_s: float = 0.0005) -> Summary:
    sides = [MeasuredSide(one, 900.0, 40, se_s, 0.9, 20) for one in (1.0, 1.0 + slowdown_pct / 100.0)]
    return Summary(sides[0], sides[1], True, 10.0)


def test_iterations_that_last_longer_are_told_with_the_remedy() -> None:
    line = slower(lasting(0.6), 0.0, 1.0)
    assert "0.60 %" in line
    assert "objective.reserve_pct 2" in line
    assert "objective.reserve_pct 6" in slower(lasting(0.6), 0.0, 3.0)


def test_neither_chance_nor_what_was_planned_is_told() -> None:
    assert slower(lasting(0.2), 0.0, 1.0) == ""
    assert slower(lasting(0.6, se_s=0.004), 0.0, 1.0) == ""
    assert slower(lasting(5.1), 5.0, 1.0) == ""
    assert slower(lasting(0.6), -0.5, 1.0)
    assert slower(lasting(0.6), 0.0, 1.0, within_pct=0.4) == ""


def beside_a_straggler(slower_pct: float) -> RankReport:
    """The report of a rank that was measured beside a straggler alone."""
    lasts_s = {Mode.BASELINE_BESIDE: 1.0, Mode.PERSEUS_BESIDE: 1.0 + slower_pct / 100.0}
    totals = {mode: Total() for mode in Mode}
    for mode, time_s in lasts_s.items():
        samples = [Sample(index, 1, time_s + 1e-4 * (index % 2), 500.0) for index in range(40)]
        totals[mode] = Total(40, deque(samples))
    return RankReport(0, 0, 0, totals, Spent(), {})


@pytest.mark.parametrize(("slower_pct", "ends"), [(3.0, True), (0.1, False)])
def test_an_audit_ends_answers_that_cost_more_than_they_may(
    tmp_path: Path, *, slower_pct: float, ends: bool
) -> None:
    plans, directory, log = two_plans(), RunDirectory(tmp_path), EventLog(0)
    log.writes_to(directory)
    reports = [beside_a_straggler(slower_pct)] * 2
    channel = SimpleNamespace(gather_to_first=lambda _: reports, broadcast_result=lambda act: act())
    job = Job(0, 2, 0, 0, plans.schedule, {"gpu": "A100"})
    context = SimpleNamespace(
        job=job, config=parse({}, {}), channel=channel, directory=directory, log=log, simulated=True
    )
    books = SimpleNamespace(
        report=lambda _: reports[0], totals={job.schedule.microbatches: reports[0].totals}
    )
    audits = Audits(cast("RankBooks", books))
    found = [
        audits.audit(
            cast("JobContext", context), plans.plan(0), Expected(20.0, 0.0, 0.0, 0.0), named="", answers={}
        )
        for _ in range(2)
    ]
    assert found == [ends, False]
    names = [event["event"] for event in read_events(directory.events)]
    assert names.count("answers_ended") == ends
