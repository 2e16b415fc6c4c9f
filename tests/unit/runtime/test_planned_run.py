"""A plan that runs: its clocks, what is expected and measured of it, pacing by loads, and its summary."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest
from lone_job import events_of
from schedules import two_plans

from perseus_ds.config import parse
from perseus_ds.config.settings import StragglerSettings
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import PlanError
from perseus_ds.plan.file import dumps
from perseus_ds.plan.record import Expected, PlanSet, Segment
from perseus_ds.plan.waits import WaitClock
from perseus_ds.profile.loads import LoadFit
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, RankPlace, Spent, Summary, read_ranks
from perseus_ds.runtime import planned_run, summaries
from perseus_ds.runtime.accounting import Mode, RankReport, Sample, Total, as_samples
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job, Sets
from perseus_ds.runtime.phases import ActivePlan
from perseus_ds.schedule import Kind, Load, textbook

PLANS = two_plans()
CLOCKS = tuple(sorted({int(c) for own in PLANS.options.values() for c in own.clock_mhz}, reverse=True))


ABLE = Capabilities(CLOCKS, (), can_lock=True, why_not=None, counter_period_s=0.1, switch_latency_s=0.0)


def checked(plans: PlanSet, clocks: tuple[int, ...] = CLOCKS, memory: tuple[int, ...] = ()) -> None:
    able = replace(ABLE, clocks_mhz=clocks, memory_clocks_mhz=memory)
    for rank in range(plans.schedule.ranks):
        planned_run.check_clocks(plans, rank, able, where=Path("run"))


def test_clocks_of_the_grid_pass_and_a_clock_that_the_gpu_has_not_is_named() -> None:
    checked(PLANS)
    checked(PLANS, (*CLOCKS, 210))
    with pytest.raises(PlanError, match=rf"rank 0.*{CLOCKS[0]} MHz"):
        checked(PLANS, CLOCKS[1:])
    low = replace(PLANS, wait_clock=WaitClock(345, 10.0, 20.0, ClockChange()))
    with pytest.raises(PlanError, match="345 MHz"):
        checked(low)
    checked(low, (*CLOCKS, 345))


def test_memory_clocks_of_timelines_count_too() -> None:
    key, own = next(iter(PLANS.options.items()))
    lasts_s = float(own.time_s[0])
    lines = ((Segment(CLOCKS[0], 810, lasts_s),),)
    changed = replace(own, time_s=[*own.time_s, lasts_s], energy_j=[*own.energy_j, 1.0], timelines=lines)
    plans = replace(PLANS, options={**PLANS.options, key: changed})
    with pytest.raises(PlanError, match=rf"{CLOCKS[0]} MHz.*810 MHz"):
        checked(plans)
    checked(plans, memory=(1593, 810))


# A job's expectation of its plan: the planner's, where that was for a job like it.

KNOWN = Expected(12.5, 0.07, 0.25, 0.04)
EXPECTED = replace(two_plans(), fingerprint={"replicas": "2"}, expected={1: KNOWN}).plan(1)


@pytest.mark.parametrize(("replicas", "index", "known"), [(2, 1, True), (3, 1, False), (2, 0, False)])
def test_the_planners_figures_hold_for_as_many_replicas(replicas: int, index: int, *, known: bool) -> None:
    """Rank 1 has no profile to work it out from: else it takes the plan's own."""
    job = Job(1, 4, 1, 0, textbook("1f1b", stages=2, microbatches=1), {"replicas": str(replicas)})
    plan = EXPECTED.of.plan(index)
    own = Expected(plan.saving_pct, plan.slowdown_pct, 0.0, 0.0)
    assert planned_run.expected_of(SimpleNamespace(job=job), plan) == (KNOWN if known else own)


# Lines on a measured saving: its error, its absence, and what an audit ends.


def test_a_host_that_cannot_keep_up_claims_nothing() -> None:
    kept_up, at_the_limit, too_late = (
        RankReport(0, 0, 0, {}, Spent(), {}, overrun_share=share) for share in (0.0, 0.01, 0.02)
    )
    assert planned_run.too_slow([kept_up, at_the_limit]) == ""
    assert "2.0 %" in planned_run.too_slow([kept_up, too_late])


def measured(energy_j: float, *, predicted_pct: float) -> Summary:
    sides = [MeasuredSide(1.0, one, 40, 0.001, 0.001 * one, 20) for one in (1000.0, energy_j)]
    return Summary(*sides, True, predicted_pct)


def test_the_error_of_a_saving_is_that_of_the_ratio() -> None:
    summary = measured(800.0, predicted_pct=20.0)
    assert summary.saving_se_pct == pytest.approx(80.0 * 0.001 * 2**0.5)
    assert summary.saving_within_pct == pytest.approx(2.02 * 80.0 * 0.001 * 2**0.5, rel=0.01)


@pytest.mark.parametrize(
    ("energy_j", "predicted_pct", "paced", "says"),
    [
        (800.0, 19.0, False, ""),
        (800.0, 15.0, False, "points more"),
        (900.0, 15.0, False, "points less"),
        (800.0, 15.0, True, ""),
        (900.0, 15.0, True, "points less"),
    ],
)
def test_a_contradiction_is_beyond_both_errors(
    energy_j: float, predicted_pct: float, says: str, *, paced: bool
) -> None:
    """Pacing by loads may save more than expected, and no less."""
    line = planned_run.contradiction(measured(energy_j, predicted_pct=predicted_pct), 1.0, paced=paced)
    assert says in line
    assert bool(line) == bool(says)


def test_nothing_contradicts_without_an_error() -> None:
    summary = Summary(MeasuredSide(1.0, 1000.0, 2), MeasuredSide(1.0, 800.0, 2), True, 90.0)
    assert summary.saving_se_pct is None
    assert planned_run.contradiction(summary, 1.0) == ""


def test_a_figure_is_written_with_its_error() -> None:
    assert planned_run.with_error(18.46, 0.31, decimals=1).split(" +- ") == ["18.5", "0.3 %"]
    assert planned_run.with_error(-0.001, 0.02, signed=True).split(" +- ") == ["+0.00", "0.02 %"]
    assert planned_run.with_error(18.46, None, decimals=1) == "18.5 %"


def lasting(slowdown_pct: float, *, se_s: float = 0.0005) -> Summary:
    sides = [MeasuredSide(one, 900.0, 40, se_s, 0.9, 20) for one in (1.0, 1.0 + slowdown_pct / 100.0)]
    return Summary(*sides, True, 10.0)


def test_iterations_that_last_longer_are_told_with_the_remedy() -> None:
    line = planned_run.slower(lasting(0.6), 0.0, 1.0)
    assert "0.60 %" in line
    assert "objective.reserve_pct 2" in line
    assert "objective.reserve_pct 6" in planned_run.slower(lasting(0.6), 0.0, 3.0)
    assert planned_run.slower(lasting(0.6), -0.5, 1.0)


@pytest.mark.parametrize(
    ("summary", "planned_pct", "within_pct"),
    [
        (lasting(0.2), 0.0, 0.0),
        (lasting(0.6, se_s=0.004), 0.0, 0.0),
        (lasting(5.1), 5.0, 0.0),
        (lasting(0.6), 0.0, 0.4),
    ],
)
def test_chance_and_the_planned_are_not_told(summary: Summary, planned_pct: float, within_pct: float) -> None:
    assert planned_run.slower(summary, planned_pct, 1.0, within_pct=within_pct) == ""


def beside_a_straggler(slower_pct: float) -> RankReport:
    """The report of a rank that was measured beside a straggler alone."""
    lasts_s = {Mode.BASELINE_BESIDE: 1.0, Mode.PERSEUS_BESIDE: 1.0 + slower_pct / 100.0}
    totals = {mode: Total() for mode in Mode}
    for mode, time_s in lasts_s.items():
        samples = [Sample(index, 1, time_s + 1e-4 * (index % 2), 500.0) for index in range(40)]
        totals[mode] = Total(40, as_samples(samples))
    return RankReport(0, 0, 0, totals, Spent(), {})


@pytest.mark.parametrize(("slower_pct", "ends"), [(3.0, True), (0.1, False)])
def test_an_audit_ends_answers_that_cost_more_than_they_may(
    directory: RunDirectory, log: EventLog, *, slower_pct: float, ends: bool
) -> None:
    reports, places = [beside_a_straggler(slower_pct)] * 2, (RankPlace(0, 0, "host", "0"),)
    context = SimpleNamespace(
        job=Job(0, 2, 0, 0, PLANS.schedule, {"gpu": "A100", "replicas": "1"}, places=places),
        config=parse({}, {}),
        channel=SimpleNamespace(
            gather=lambda _, **__: reports,
            broadcast_result=lambda act: act(),
            gather_results=lambda act: [act()],
        ),
        directory=directory,
        log=log,
        simulated=True,
        whose_time="",
        capabilities=ABLE,
        reckoning=SimpleNamespace(change=ClockChange()),
    )
    books = SimpleNamespace(
        report=lambda _: reports[0], totals={PLANS.schedule.microbatches: reports[0].totals}
    )
    arrivals = SimpleNamespace(behind=0, expect=lambda _: None)
    found: dict[int, Summary] = {}
    for _ in range(2):  # batches of two sizes, each with its own answers
        run = planned_run.PlannedRun(
            context, dumps(PLANS), named="", books=books, summaries=found, arrivals=arrivals
        )
        run.phase()
        with patch.object(ActivePlan, "end_answers") as ended:
            assert [run.audit() for _ in range(2)] == [None, None]
        assert ended.call_count == ends
    assert len(events_of(directory.path, "answers_ended")) == 2 * ends


# Pacing by loads of a job's own accord: where all know loads that explain durations; audits may end it.

FITS = {(0, Kind.FORWARD): LoadFit(Load(1.0, 1.0), 0.1, 0.7, 0.2, 0.01, 0.98, 100)}
SCHEDULE = textbook("1f1b", stages=2, microbatches=1)
ALL_KNOW = (True, False, True, False)


def ranks(
    known: tuple[bool, ...] = ALL_KNOW, *, pacing: str = "automatic", replicas: int = 2
) -> tuple[MagicMock, MagicMock]:
    """Return a context of rank 0, and the gather at which ranks say whether they know their loads."""
    context = MagicMock(job=Job(0, 4, 0, 0, SCHEDULE, {"replicas": str(replicas)}))
    context.config.straggler = StragglerSettings(pacing=pacing)
    context.channel.gather.return_value = [(rank // 2, rank % 2, knows) for rank, knows in enumerate(known)]
    return context, context.channel.gather


@pytest.mark.parametrize(
    ("known", "r2", "against"),
    [(ALL_KNOW, 0.98, ""), ((True, True, False, True), 0.98, "replica 1"), (ALL_KNOW, 0.4, "40 %")],
    ids=["later stages need not know loads", "a first stage does not", "loads explain too little"],
)
def test_it_is_on_where_known_loads_explain_times(known: tuple[bool, ...], r2: float, against: str) -> None:
    (context, _), fits = ranks(known), {key: replace(fit, r2=r2) for key, fit in FITS.items()}
    assert planned_run.is_paced(context, fits, loads_known=True, named="") is not bool(against)
    [call] = context.log.event.call_args_list
    assert call.args[0] == "pacing_choice"
    assert against in call.args[1]


@pytest.mark.parametrize(
    ("pacing", "replicas", "fits"), [("never", 2, FITS), ("automatic", 1, FITS), ("automatic", 2, {})]
)
def test_where_it_is_no_question_nothing_is_exchanged_or_stated(
    pacing: str, replicas: int, fits: dict[tuple[int, Kind], LoadFit]
) -> None:
    context, gather = ranks(pacing=pacing, replicas=replicas)
    assert not planned_run.is_paced(context, fits, loads_known=True, named="")
    gather.assert_not_called()
    context.log.event.assert_not_called()


@pytest.mark.parametrize(("slowdown_pct", "over"), [(0.1, False), (0.28, False), (0.5, True)])
def test_an_audit_ends_it_where_the_job_is_slower_beyond_errors(slowdown_pct: float, *, over: bool) -> None:
    assert bool(planned_run.why_ended(lasting(slowdown_pct, se_s=0.0002), allowed_pct=0.25)) == over


# From the ranks' words to the summary: energy of all GPUs, each per its own iterations.

PLAN = two_plans().plan(1)
JOB = Job(0, 2, 0, 0, textbook("1f1b", stages=2, microbatches=1), {})


def total(iterations: int, *, energy_j: float, time_s: float = 6.0) -> Total:
    each_j = energy_j / max(1, iterations)
    return Total(iterations, as_samples(Sample(index, 1, time_s, each_j) for index in range(iterations)))


def report(stage: int, baseline: Total, perseus: Total, **more: object) -> RankReport:
    durations_s = {Mode.BASELINE: [1.0, 2.0], Mode.PERSEUS: [1.4, 2.8]}
    totals = {Mode.BASELINE: baseline, Mode.PERSEUS: perseus}
    return RankReport(stage, stage, 0, totals, Spent(3.0, 50.0), durations_s, **more)


def summary(*reports: RankReport) -> Summary | None:
    return summaries.summarise(reports, PLAN.saving_pct, simulated=True, facts={"gpus": len(reports)})


def test_energy_is_summed_over_gpus_and_time_is_the_slowest_ones() -> None:
    found = summary(
        report(0, total(2, energy_j=2000.0), total(4, energy_j=3000.0, time_s=6.1)),
        report(1, total(2, energy_j=1000.0), total(4, energy_j=1000.0, time_s=6.3)),
    )
    assert (found.baseline.energy_j, found.perseus.energy_j) == (1500.0, 1000.0)
    assert (found.baseline.iteration_time_s, found.perseus.iteration_time_s) == (6.0, 6.3)
    assert found.saving_pct == pytest.approx(100 / 3)
    assert found.slowdown_pct == pytest.approx(5.0)
    assert found.predicted_saving_pct == PLAN.saving_pct


def test_ranks_that_settled_different_numbers_of_iterations_count_alike() -> None:
    found = summary(
        report(0, total(2, energy_j=2000.0), total(2, energy_j=2000.0)),
        report(1, total(3, energy_j=3000.0), total(1, energy_j=1000.0)),
    )
    assert found.saving_pct == 0.0
    assert (found.baseline.iterations, found.perseus.iterations) == (2, 1)


def test_nothing_is_claimed_before_every_rank_measured_both_sides() -> None:
    some, none = total(2, energy_j=1.0), total(0, energy_j=0.0)
    for half in (report(1, none, some), report(1, some, none)):
        assert summary(report(0, some, some), half) is None


def test_iterations_beside_a_straggler_stand_apart() -> None:
    def waited(*modes: dict[Mode, Total]) -> list[RankReport]:
        return [RankReport(stage, stage, 0, totals, Spent(), {}) for stage, totals in enumerate(modes)]

    answered = {Mode.PERSEUS_BESIDE: total(4, energy_j=2000.0, time_s=9.0)}
    assert summaries.beside_stragglers(waited({}, answered)) == {}
    side = {"iteration_time_s": 9.0, "energy_j": 1000.0, "iterations": 4}
    assert summaries.beside_stragglers(waited(answered, answered)) == {"beside_stragglers": {"perseus": side}}
    both = answered | {Mode.BASELINE_BESIDE: total(2, energy_j=1500.0, time_s=9.0)}
    sides = {"baseline": side | {"energy_j": 1500.0, "iterations": 2}, "perseus": side}
    assert summaries.beside_stragglers(waited(both, both))["beside_stragglers"] == sides
    summary = summaries.summarise(waited(both, both), 5.0, simulated=True, facts={})
    assert summary.facts["measured_beside_a_straggler"]
    assert (summary.baseline.energy_j, summary.perseus.energy_j) == (1500.0, 1000.0)


def test_timelines_show_both_sides_at_their_clocks() -> None:
    reports = [report(stage, total(1, energy_j=1.0), total(1, energy_j=1.0)) for stage in (0, 1)]
    baseline, perseus = summaries.timelines(reports, PLAN, JOB, simulated=True)
    computed = {str(s.instruction): s.clock_mhz for s in perseus.spans if s.clock_mhz is not None}
    assert computed == {"0F0": 1400, "0B0": 1000, "1F0": 1000, "1B0": 1000}
    assert {s.clock_mhz for s in baseline.spans if s.clock_mhz is not None} == {1400}
    assert baseline.iteration_time_s == pytest.approx(6.0)
    assert perseus.iteration_time_s == pytest.approx(8.4)


def test_every_rank_leaves_its_totals(tmp_path: Path) -> None:
    directory, totals = RunDirectory(tmp_path), (total(2, energy_j=8.0), total(0, energy_j=0.0))
    summaries.write_ranks([report(1, *totals)], directory, run="r1")
    content = json.loads((directory.ranks / "rank_00001.json").read_text())
    assert (content["run"], content["temperature_c"]) == ("r1", {})
    assert content["totals"]["baseline"] == {"iterations": 2, "energy_j": 4.0, "iteration_time_s": 6.0}
    assert content["totals"]["perseus"] == {"iterations": 0, "energy_j": 0.0, "iteration_time_s": 0.0}
    summaries.write_ranks([report(1, *totals, temperature_c={Mode.PERSEUS: 51.5})], directory, run="r1")
    assert [one.temperature_c["perseus"] for one in read_ranks(directory.ranks)] == [51.5]


# Joules by token and by sample: by hand.

SUMMARY = Summary(MeasuredSide(1.0, 7200.0, 40), MeasuredSide(1.0, 3600.0, 40), True, 50.0)


def worth_of(
    size: float, sets: Sets = ((0,), (1,), (2,)), *, plan: float = 1.0, **traits: str
) -> dict[str, object]:
    """Three pipelines of two ranks; at the plan batches were ``plan`` times as large."""
    totals = {
        mode: Total(2, as_samples(Sample(index, 1, 1.0, 1.0, (1 + 2 * index) * each) for index in range(2)))
        for mode, each in ((Mode.BASELINE, size), (Mode.PERSEUS, plan * size))
    }
    set_of = {pipeline: at for at, one in enumerate(sets) for pipeline in one}
    reports = [RankReport(rank, rank % 2, set_of[rank // 2], totals, Spent(), {}) for rank in range(6)]
    places = tuple(RankPlace(rank // 2, rank % 2, "host", str(rank)) for rank in range(6))
    schedule = textbook("1f1b", stages=2, microbatches=4)
    fingerprint = {"replicas": str(len(sets)), **traits}
    return summaries.worth(SUMMARY, reports, Job(0, 6, 0, 0, schedule, fingerprint, sets=sets, places=places))


def test_each_replicas_first_rank_counts_its_tokens_once() -> None:
    assert worth_of(100.0, micro_batch_size="5") == {
        "worth": {
            "baseline": {"energy_per_token_j": 12.0, "energy_per_sample_j": 120.0},
            "perseus": {"energy_per_token_j": 6.0, "energy_per_sample_j": 60.0},
        }
    }
    assert worth_of(0.0, microbatch="? x 4096") == {}, "what nobody counts is left out"


def test_pipelines_that_are_coupled_count_their_own_tokens() -> None:
    """Experts couple the first two in every layer: the runtime numbers them as one."""
    assert worth_of(100.0, ((0, 1), (2,))) == {
        "worth": {"baseline": {"energy_per_token_j": 12.0}, "perseus": {"energy_per_token_j": 6.0}}
    }


def test_energies_at_one_size_are_held_against_the_tokens_of_that_size() -> None:
    """Both energies are of the mean of all batches, whichever of them either side had."""
    assert worth_of(100.0, plan=3.0)["worth"] == {
        "baseline": {"energy_per_token_j": 6.0},
        "perseus": {"energy_per_token_j": 3.0},
    }
