"""From the ranks' words to the summary: energy of all GPUs, each per its own iterations."""

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import pytest
from schedules import two_plans

from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, Spent, Summary, read_ranks
from perseus_ds.runtime.accounting import Mode, RankReport, Sample, Total
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.summaries import (
    beside_stragglers,
    course_rows,
    summarise,
    timelines,
    worth,
    write_ranks,
)
from perseus_ds.schedule import textbook

PLAN = two_plans().plan(1)
JOB = Job(0, 2, 0, 0, textbook("1f1b", stages=2, microbatches=1), {})


def total(iterations: int, *, energy_j: float, time_s: float = 6.0) -> Total:
    each_j = energy_j / max(1, iterations)
    return Total(iterations, deque(Sample(index, 1, time_s, each_j) for index in range(iterations)))


def report(stage: int, baseline: Total, perseus: Total, **more: object) -> RankReport:
    durations_s = {Mode.BASELINE: [1.0, 2.0], Mode.PERSEUS: [1.4, 2.8]}
    totals = {Mode.BASELINE: baseline, Mode.PERSEUS: perseus}
    return RankReport(stage, stage, 0, totals, Spent(3.0, 50.0), durations_s, **more)


def summary(*reports: RankReport) -> Summary | None:
    return summarise(reports, PLAN.saving_pct, simulated=True, facts={"gpus": len(reports)})


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
    assert beside_stragglers(waited({}, answered)) == {}
    side = {"iteration_time_s": 9.0, "energy_j": 1000.0, "iterations": 4}
    assert beside_stragglers(waited(answered, answered)) == {"beside_stragglers": {"perseus": side}}
    both = answered | {Mode.BASELINE_BESIDE: total(2, energy_j=1500.0, time_s=9.0)}
    sides = {"baseline": side | {"energy_j": 1500.0, "iterations": 2}, "perseus": side}
    assert beside_stragglers(waited(both, both))["beside_stragglers"] == sides
    summary = summarise(waited(both, both), 5.0, simulated=True, facts={})
    assert summary.facts["measured_beside_a_straggler"]
    assert (summary.baseline.energy_j, summary.perseus.energy_j) == (1500.0, 1000.0)


def test_timelines_show_both_sides_at_their_clocks() -> None:
    reports = [report(stage, total(1, energy_j=1.0), total(1, energy_j=1.0)) for stage in (0, 1)]
    baseline, perseus = timelines(reports, PLAN, JOB, simulated=True)
    computed = {str(s.instruction): s.clock_mhz for s in perseus.spans if s.clock_mhz is not None}
    assert computed == {"0F0": 1400, "0B0": 1000, "1F0": 1000, "1B0": 1000}
    assert {s.clock_mhz for s in baseline.spans if s.clock_mhz is not None} == {1400}
    assert baseline.iteration_time_s == pytest.approx(6.0)
    assert perseus.iteration_time_s == pytest.approx(8.4)


def test_every_rank_leaves_its_totals(tmp_path: Path) -> None:
    directory, totals = RunDirectory(tmp_path), (total(2, energy_j=8.0), total(0, energy_j=0.0))
    write_ranks([report(1, *totals)], directory, run="r1")
    content = json.loads((directory.ranks / "rank_00001.json").read_text())
    assert (content["run"], content["temperature_c"]) == ("r1", {})
    assert content["totals"]["baseline"] == {"iterations": 2, "energy_j": 4.0, "iteration_time_s": 6.0}
    assert content["totals"]["perseus"] == {"iterations": 0, "energy_j": 0.0, "iteration_time_s": 0.0}
    assert content["course"] == {"baseline": [[0, 6.0, 4.0], [1, 6.0, 4.0]], "perseus": []}
    write_ranks([report(1, *totals, temperature_c={Mode.PERSEUS: 51.5})], directory, run="r1")
    assert [one.temperature_c["perseus"] for one in read_ranks(directory.ranks)] == [51.5]


def test_a_long_course_is_thinned_to_means_of_neighbours() -> None:
    long = Total(600, deque(Sample(index, 1, 1.0 + index, 10.0) for index in range(600)))
    rows = course_rows(long)
    assert len(rows) == 120
    assert rows[1] == [5, 8.0, 10.0]


# Joules by token and by sample: by hand.

SUMMARY = Summary(MeasuredSide(1.0, 7200.0, 40), MeasuredSide(1.0, 3600.0, 40), True, 50.0)


def worth_of(size: float, **traits: str) -> Mapping[str, object]:
    samples = deque([Sample(0, 1, 1.0, 1.0, size), Sample(1, 1, 1.0, 1.0, 3 * size)])
    totals = dict.fromkeys((Mode.BASELINE, Mode.PERSEUS), Total(2, samples))
    reports = [RankReport(rank, rank % 2, rank // 2, totals, Spent(), {}) for rank in range(6)]
    schedule = textbook("1f1b", stages=2, microbatches=4)
    job = Job(0, 6, 0, 0, schedule, {"replicas": "3", **traits}, sets=((0,), (1,), (2,)))
    return worth(SUMMARY, reports, job)


def test_each_replicas_first_rank_counts_its_tokens_once() -> None:
    assert worth_of(100.0, micro_batch_size="5") == {
        "worth": {
            "baseline": {"energy_per_token_j": 12.0, "energy_per_sample_j": 120.0},
            "perseus": {"energy_per_token_j": 6.0, "energy_per_sample_j": 60.0},
        }
    }
    assert worth_of(0.0, microbatch="? x 4096") == {}, "what nobody counts is left out"
