"""A plan that runs: its clocks, what is expected and measured of it, and pacing by loads."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from schedules import two_plans

from perseus_ds.config import parse
from perseus_ds.config.settings import StragglerSettings
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import PlanError
from perseus_ds.plan import Expected, dumps
from perseus_ds.plan.record import PlanSet, Segment
from perseus_ds.plan.waits import WaitClock
from perseus_ds.profile import LoadFit
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, Spent, Summary
from perseus_ds.runtime.accounting import Mode, RankBooks, RankReport, Sample, Total
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.planned_run import (
    PlannedRun,
    check_clocks,
    contradiction,
    expected_of,
    is_paced,
    slower,
    too_slow,
    why_ended,
    with_error,
)
from perseus_ds.runtime.recorder import Arrivals
from perseus_ds.schedule import Kind, Load, textbook

PLANS = two_plans()
CLOCKS = tuple(sorted({int(c) for own in PLANS.options.values() for c in own.clock_mhz}, reverse=True))


def checked(plans: PlanSet, clocks: tuple[int, ...] = CLOCKS, memory: tuple[int, ...] = ()) -> None:
    able = Capabilities(
        clocks, memory, can_lock=True, why_not=None, counter_period_s=0.1, switch_latency_s=0.0
    )
    for rank in range(plans.schedule.ranks):
        check_clocks(plans, rank, able, where=Path("run"))


def test_clocks_of_the_grid_pass() -> None:
    checked(PLANS)
    checked(PLANS, (*CLOCKS, 210))


def test_a_clock_that_the_gpu_has_not_is_named() -> None:
    with pytest.raises(PlanError, match=rf"rank 0.*{CLOCKS[0]} MHz"):
        checked(PLANS, CLOCKS[1:])


def test_the_clock_of_waits_counts_too() -> None:
    low = replace(PLANS, wait_clock=WaitClock(345, 10.0, 20.0, ClockChange()))
    with pytest.raises(PlanError, match="345 MHz"):
        checked(low)
    checked(low, (*CLOCKS, 345))


def test_memory_clocks_of_timelines_count_too() -> None:
    key, own = next(iter(PLANS.options.items()))
    lasts_s = float(own.time_s[0])
    line = (Segment(CLOCKS[0], 810, lasts_s),)
    with_memory = replace(
        own, time_s=[*own.time_s, lasts_s], energy_j=[*own.energy_j, 1.0], timelines=(line,)
    )
    plans = replace(PLANS, options={**PLANS.options, key: with_memory})
    with pytest.raises(PlanError, match=rf"{CLOCKS[0]} MHz.*810 MHz"):
        checked(plans)
    checked(plans, memory=(1593, 810))


# A job's expectation of its plan: the planner's, where that was for a job like it.

KNOWN = Expected(12.5, 0.07, 0.25, 0.04)
PLAN = replace(two_plans(), fingerprint={"replicas": "2"}, expected={1: KNOWN}).plan(1)


@pytest.mark.parametrize(("replicas", "index", "known"), [(2, 1, True), (3, 1, False), (2, 0, False)])
def test_the_planner_s_word_holds_for_its_plan_and_as_many_replicas(
    replicas: int, index: int, *, known: bool
) -> None:
    """Rank 1 has no profile to work it out from: else it takes the plan's own."""
    job = Job(1, 4, 1, 0, textbook("1f1b", stages=2, microbatches=1), {"replicas": str(replicas)})
    context = cast("JobContext", SimpleNamespace(job=job))
    plan = PLAN.of.plan(index)
    own = Expected(plan.saving_pct, plan.slowdown_pct, 0.0, 0.0)
    assert expected_of(context, plan) == (KNOWN if known else own)


# Lines on a measured saving: its error, its absence, and what an audit ends.


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
    directory: RunDirectory, log: EventLog, *, slower_pct: float, ends: bool
) -> None:
    plans = two_plans()
    reports = [beside_a_straggler(slower_pct)] * 2
    channel = SimpleNamespace(
        gather_to_first=lambda _: reports,
        broadcast_result=lambda act: act(),
        gather_results=lambda act: [act()],
    )
    able = Capabilities(CLOCKS, (), can_lock=True, why_not=None, counter_period_s=0.1, switch_latency_s=0.0)
    context = SimpleNamespace(
        job=Job(0, 2, 0, 0, plans.schedule, {"gpu": "A100", "replicas": "1"}),
        config=parse({}, {}),
        channel=channel,
        directory=directory,
        log=log,
        simulated=True,
        whose_time="",
        capabilities=able,
        reckoning=SimpleNamespace(change=ClockChange()),
    )
    books = SimpleNamespace(
        report=lambda _: reports[0], totals={plans.schedule.microbatches: reports[0].totals}
    )
    arrivals = SimpleNamespace(behind=0, expect=lambda _: None)
    summaries: dict[int, Summary] = {}
    for _ in range(2):  # batches of two sizes, each with its own answers
        run = PlannedRun(
            cast("JobContext", context),
            dumps(plans),
            named="",
            books=cast("RankBooks", books),
            summaries=summaries,
            arrivals=cast("Arrivals", arrivals),
        )
        run.phase()
        assert [run.audit() for _ in range(2)] == [None, None]
    names = [event["event"] for event in read_events(directory.events)]
    assert names.count("answers_ended") == 2 * ends


# Pacing by loads of a job's own accord: where all know loads that explain durations; audits may end it.

FITS = {(0, Kind.FORWARD): LoadFit(Load(1.0, 1.0), 0.1, 0.7, 0.2, 0.01, 0.98, 100)}
SCHEDULE = textbook("1f1b", stages=2, microbatches=1)
ALL_KNOW = (True, False, True, False)


class Ranks:
    """Answers of all ranks to a gather, and the lines of rank 0."""

    def __init__(self, known: tuple[bool, ...], pacing: str, replicas: int) -> None:
        self.known, self.met = known, 0
        self.events: list[tuple[str, str]] = []
        settings = StragglerSettings(pacing=cast("Any", pacing))
        self.context = cast(
            "JobContext",
            SimpleNamespace(
                job=Job(0, 4, 0, 0, SCHEDULE, {"replicas": str(replicas)}),
                config=SimpleNamespace(straggler=settings),
                channel=self,
                log=self,
            ),
        )

    def gather(self, own: object) -> list[tuple[int, int, bool]]:
        del own
        self.met += 1
        return [(rank // 2, rank % 2, knows) for rank, knows in enumerate(self.known)]

    def event(self, event: str, line: str, **facts: object) -> None:
        del facts
        self.events.append((event, line))


def chosen(known: tuple[bool, ...] = ALL_KNOW, *, r2: float = 0.98) -> tuple[bool, str]:
    ranks = Ranks(known, "automatic", 2)
    fits = {key: replace(fit, r2=r2) for key, fit in FITS.items()}
    paced = is_paced(ranks.context, fits, loads_known=True, named="")
    assert [event for event, _ in ranks.events] == ["pacing_choice"], "one line states what was chosen"
    return paced, ranks.events[0][1]


def test_it_is_on_where_every_first_stage_knows_loads_and_later_ones_need_not() -> None:
    assert chosen(ALL_KNOW)[0]
    paced, line = chosen((True, True, False, True))
    assert not paced
    assert "replica 1" in line


def test_loads_that_explain_too_little_speak_against_it() -> None:
    paced, line = chosen(r2=0.4)
    assert not paced
    assert "40 %" in line


@pytest.mark.parametrize(
    ("pacing", "replicas", "fits"), [("never", 2, FITS), ("automatic", 1, FITS), ("automatic", 2, {})]
)
def test_where_it_is_no_question_nothing_is_exchanged_or_stated(
    pacing: str, replicas: int, fits: dict[tuple[int, Kind], LoadFit]
) -> None:
    ranks = Ranks(ALL_KNOW, pacing, replicas)
    assert not is_paced(ranks.context, fits, loads_known=True, named="")
    assert (ranks.met, ranks.events) == (0, [])


def slowed_by(slowdown_pct: float) -> Summary:
    sides = [MeasuredSide(one, 900.0, 40, 0.0002, 0.5, 20) for one in (1.0, 1.0 + slowdown_pct / 100.0)]
    return Summary(sides[0], sides[1], True, 15.0)


@pytest.mark.parametrize(("slowdown_pct", "over"), [(0.1, False), (0.28, False), (0.5, True)])
def test_an_audit_ends_it_where_the_job_is_slower_beyond_errors(slowdown_pct: float, *, over: bool) -> None:
    assert bool(why_ended(slowed_by(slowdown_pct), allowed_pct=0.25)) == over
