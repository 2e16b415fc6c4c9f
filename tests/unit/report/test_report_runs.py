"""Runs kept apart: two in one folder are never mixed, and two folders are compared."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import page_data

from perseus_ds.cli import main
from perseus_ds.plan import PlanSet, build, write_plans
from perseus_ds.profile import Profile
from perseus_ds.report.figures import compare_measured_expected, figures, gpu_rows, time_series
from perseus_ds.report.page import page_of
from perseus_ds.report.read import load_run
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory, write_json
from perseus_ds.run_directory.records import MeasuredSide, Summary, write_summary
from perseus_ds.schedule import textbook

WriteRun = Callable[..., Path]
GPUS = 4


def attached(run: str) -> dict[str, object]:
    return {"event": "attached", "run": run, "host": "node-7", "version": "0.1.0"}


def measured(run_dir: Path, run: str, *, saved_j: float = 120.0, se_j: float = 1.0) -> None:
    """Leave a summary and the ranks' files, as a run of that name does."""
    sides = [MeasuredSide(1.0, joules, 20, 0.001, se_j, 18) for joules in (1000.0, 1000.0 - saved_j)]
    facts = {"run": run, "plan": 1, "gpus": GPUS, "predicted_saving_within_pct": 0.2}
    write_summary(Summary(sides[0], sides[1], True, 12.0, facts), run_dir / "summary.json")
    for rank in range(GPUS):
        totals = {
            side: {"iterations": 20, "iteration_time_s": 1.0 + 0.1 * rank, "energy_j": joules / GPUS}
            for side, joules in (("baseline", 1000.0), ("perseus", 1000.0 - saved_j))
        }
        course = {
            "baseline": [[first, 1.0 + 0.01 * rank, 250.0] for first in (0, 1)],
            "perseus": [[first, 1.0 + 0.01 * rank, 220.0] for first in (10, 12, 14)],
        }
        content = {"run": run, "rank": rank, "stage": rank % 2, "replica": rank // 2, "totals": totals}
        if rank != 1:  # whose driver has no sensor
            content["temperature_c"] = {"baseline": 60.0 + rank, "perseus": 50.0 + rank}
        requests = {"changes": 90, "late": 9 * rank, "overtaken": 1, "longest_late_s": 0.1}
        write_json(RunDirectory(run_dir).rank(rank), content | {"course": course, "clock_requests": requests})


def test_a_run_without_a_measurement_does_not_show_the_one_before_as_its_own(write_run: WriteRun) -> None:
    run_dir = write_run("profile", "plan", "timelines", events=[attached("one")])
    measured(run_dir, "one")
    before = load_run(run_dir)
    assert before.summary is not None
    assert len(before.ranks) == GPUS
    append_event(run_dir / "events.jsonl", "attached", attached("two"))
    after = load_run(run_dir)
    assert (after.summary, after.ranks, dict(after.timelines)) == (None, (), {})
    assert figures(after).measured is None
    assert after.earlier_runs == 1
    text = page_of(after, figures(after))
    assert "earlier run" in text
    measured(run_dir, "two", saved_j=50.0)
    again = figures(load_run(run_dir)).measured
    assert again is not None
    assert again.saving_pct == pytest.approx(5.0)


@pytest.fixture(scope="session")
def larger_plans(profile: Profile) -> PlanSet:
    """The plans of the same job for batches of eight microbatches, in place of four."""
    schedule = textbook("1f1b", stages=2, microbatches=8)
    return build(profile, schedule, blocking_power_w=70.0, fingerprint=profile.fingerprint)


def with_two_sizes(run_dir: Path, larger: PlanSet, *, measured_size: int) -> Path:
    """A run that ran batches of four microbatches, then of eight."""
    for size, plan in ((4, 1), (8, 3)):
        running = {"plan": plan, "microbatches": size}
        append_event(run_dir / "events.jsonl", "running", running)
    write_plans(larger, run_dir / "plan.m8.json")
    measured(run_dir, "one")
    summary = json.loads((run_dir / "summary.json").read_text())
    summary["facts"] |= {"microbatches": measured_size, "plan": 3}
    write_json(run_dir / "summary.json", summary)
    return run_dir


@pytest.mark.parametrize("size", [4, 8])
def test_the_plan_is_that_of_the_batches_that_were_measured(
    write_run: WriteRun, larger_plans: PlanSet, size: int
) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    contents = load_run(with_two_sizes(run_dir, larger_plans, measured_size=size))
    assert contents.chosen is not None
    assert (contents.chosen.of.schedule.microbatches, contents.chosen.index) == (size, 3)
    text = page_of(contents, figures(contents))
    assert f"time, {size} microbatches<" in text
    assert f"{size} microbatches" in figures(contents).job


def test_before_a_measurement_the_plan_is_that_of_the_batches_that_run(
    write_run: WriteRun, larger_plans: PlanSet
) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    with_two_sizes(run_dir, larger_plans, measured_size=8)
    (run_dir / "summary.json").unlink()
    chosen = load_run(run_dir).chosen
    assert chosen is not None
    assert (chosen.of.schedule.microbatches, chosen.index) == (8, 3)
    (run_dir / "plan.json").unlink()
    assert load_run(run_dir).chosen is not None


def test_a_plan_for_other_batches_is_not_shown_as_the_measured_ones(
    write_run: WriteRun, larger_plans: PlanSet
) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    with_two_sizes(run_dir, larger_plans, measured_size=8)
    (run_dir / "plan.m8.json").unlink()
    contents = load_run(run_dir)
    assert contents.plans is None
    assert "plan.m8.json" in {part.file for part in contents.missing}


def test_events_of_an_earlier_run_are_not_told_as_this_ones(write_run: WriteRun) -> None:
    events = [attached("one"), {"event": "conflict"}, {"event": "running", "plan": 3}, attached("two")]
    found = load_run(write_run("plan", events=events))
    assert [event["event"] for event in found.events] == ["attached"]
    assert found.attached["run"] == "two"


def test_each_gpu_has_its_energy_time_clock_and_missed_changes(write_run: WriteRun) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    measured(run_dir, "one")
    rows = gpu_rows(load_run(run_dir))
    named = [re.findall(r"\d+", row.name) for row in rows]
    assert named[:3] == [["0", "0", "0"], ["1", "1", "0"], ["2", "0", "1"]], "GPU, stage, replica"
    assert rows[3].energy_j == (250.0, 220.0)
    assert rows[3].time_s == (1.3, 1.3)
    assert (rows[3].changes, rows[3].missed) == (90, 28)
    assert [row.temperature_c for row in rows] == [(60.0, 50.0), None, (62.0, 52.0), (63.0, 53.0)]
    clocks = rows[0].clock_mhz
    assert clocks is not None
    assert clocks[0] == pytest.approx(1410.0)
    assert 930 <= clocks[1] < 1410


def test_the_page_shows_how_warm_each_gpu_was(write_run: WriteRun) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    measured(run_dir, "one")
    contents = load_run(run_dir)
    text = page_of(contents, figures(contents))
    assert ">°C before<" in text
    for file in (run_dir / "ranks").iterdir():
        content = json.loads(file.read_text())
        content.pop("temperature_c", None)
        write_json(file, content)
    contents = load_run(run_dir)
    assert ">°C before<" not in page_of(contents, figures(contents))


def test_of_many_gpus_those_of_a_stage_share_a_row(
    write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseus_ds.report.figures.MAX_GPU_ROWS", 3)
    run_dir = write_run("profile", "plan", events=[attached("one")])
    measured(run_dir, "one")
    rows = gpu_rows(load_run(run_dir))
    assert [(row.name.split(",")[0], row.gpus) for row in rows] == [("stage 0", 2), ("stage 1", 2)]
    assert rows[1].time_s == pytest.approx((1.2, 1.2))
    assert rows[1].missed == 10 + 28
    assert [row.temperature_c for row in rows] == [(61.0, 51.0), (63.0, 53.0)]


def test_the_course_is_the_slowest_rank_and_the_power_of_all(write_run: WriteRun) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    measured(run_dir, "one")
    before, after = time_series(load_run(run_dir))
    assert (before.iteration, after.iteration) == ((0, 1), (10, 12, 14))
    assert after.time_s == pytest.approx([1.03] * 3)
    assert after.power_w == pytest.approx([880.0 / 1.03] * 3)
    contents = load_run(run_dir)
    drawn = page_data(page_of(contents, figures(contents)))["courses"]["courses"]
    assert [one["name"] for one in drawn["series"]] == ["default clocks", "the plan"]
    assert drawn["series"][1]["x"] == [10, 12, 14]


def test_a_difference_beyond_the_errors_is_explained(write_run: WriteRun) -> None:
    run_dir = write_run("profile", "plan", events=[attached("one")])
    measured(run_dir, "one", saved_j=60.0)
    contents = load_run(run_dir)
    told = compare_measured_expected(contents, figures(contents))
    assert "6.0" in told
    assert "less than" in told
    assert "missed" in told
    measured(run_dir, "one", saved_j=119.0)
    contents = load_run(run_dir)
    assert "agrees" in compare_measured_expected(contents, figures(contents))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"rank": "a", "stage": 0, "replica": 0, "totals": {}}, "'a'"),
        ({"rank": 0, "stage": 0, "replica": 0, "course": []}, "course is"),
        ([1], "an object"),
    ],
)
def test_a_ranks_file_that_is_wrong_is_named(write_run: WriteRun, content: object, why: str) -> None:
    run_dir = write_run("profile", events=[attached("one")])
    write_json(RunDirectory(run_dir).rank(0), content)
    named = {part.file: part.why for part in load_run(run_dir).missing}
    assert "rank_00000.json" in named["ranks"]
    assert why in named["ranks"]


def test_two_runs_are_compared_in_a_table(
    write_run: WriteRun, run_writer: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = write_run(events=[attached("one")]), run_writer(tmp_path / "other", events=[attached("x")])
    measured(one, "one", saved_j=60.0)
    measured(other, "x", saved_j=120.0)
    assert main(["report", str(one), str(other)]) == 0
    told = capsys.readouterr().out
    assert "6.0 points" in told
    assert "more than" in told
    assert max(map(len, told.splitlines())) <= 80
    assert not list(other.glob("*.html"))
    measured(other, "x", saved_j=61.0)
    assert main(["report", str(one), str(other)]) == 0
    assert "within" in capsys.readouterr().out
    (other / "summary.json").unlink()
    assert main(["report", str(one), str(other)]) == 0
    assert "No saving" in capsys.readouterr().out
    assert main(["report", str(one), str(other), "-o", str(tmp_path / "c.html")]) == 1
    assert "--output" in capsys.readouterr().err
