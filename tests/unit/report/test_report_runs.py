"""Runs kept apart: two in one folder are never mixed, and two folders are compared."""

import json
import re
from pathlib import Path

import pytest
from cli_program import WriteRun

from perseus_ds.cli import main
from perseus_ds.plan import PlanSet, build, write_plans
from perseus_ds.profile import Profile
from perseus_ds.report.figures import compare_measured_expected, figures, gpu_rows
from perseus_ds.report.page import page_of
from perseus_ds.report.read import load_run
from perseus_ds.run_directory.events import append_event
from perseus_ds.run_directory.paths import RunDirectory, write_json
from perseus_ds.run_directory.records import MeasuredSide, Summary, write_summary
from perseus_ds.schedule import textbook

GPUS = 4


def attached(run: str) -> dict[str, object]:
    return {"event": "attached", "run": run, "host": "node-7", "version": "0.1.0"}


@pytest.fixture
def run_dir(write_run: WriteRun) -> Path:
    return write_run("profile", "plan", events=[attached("one")])


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
        content = {"run": run, "rank": rank, "stage": rank % 2, "replica": rank // 2, "totals": totals}
        if rank != 1:  # whose driver has no sensor
            content["temperature_c"] = {"baseline": 60.0 + rank, "perseus": 50.0 + rank}
        requests = {"changes": 90, "late": 9 * rank, "overtaken": 1, "longest_late_s": 0.1}
        write_json(RunDirectory(run_dir).rank(rank), content | {"clock_requests": requests})


def test_a_run_without_a_measurement_does_not_show_the_one_before_as_its_own(write_run: WriteRun) -> None:
    run_dir = write_run("profile", "plan", "timelines", events=[attached("one")])
    measured(run_dir, "one")
    before = load_run(run_dir)
    assert before.summary is not None
    assert len(before.ranks) == GPUS
    append_event(run_dir / "events.jsonl", "attached", attached("two"))
    after = load_run(run_dir)
    assert [event["run"] for event in after.events] == ["two"]
    assert (after.summary, after.ranks, after.timelines) == (None, (), ())
    assert figures(after).measured is None
    assert after.earlier_runs == 1
    assert "earlier run" in page_of(after, figures(after))
    measured(run_dir, "two", saved_j=50.0)
    assert figures(load_run(run_dir)).measured.saving_pct == pytest.approx(5.0)


@pytest.fixture(scope="session")
def larger_plans(profile: Profile) -> PlanSet:
    """The plans of the same job for batches of eight microbatches, in place of four."""
    schedule = textbook("1f1b", stages=2, microbatches=8)
    return build(profile, schedule, blocking_power_w=70.0, fingerprint=profile.fingerprint)


def with_two_sizes(run_dir: Path, larger: PlanSet, *, measured_size: int) -> Path:
    """A run that ran batches of four microbatches, then of eight."""
    for size, plan in ((4, 1), (8, 3)):
        append_event(run_dir / "events.jsonl", "running", {"plan": plan, "microbatches": size})
    write_plans(larger, run_dir / "plan.m8.json")
    measured(run_dir, "one")
    summary = json.loads((run_dir / "summary.json").read_text())
    summary["facts"] |= {"microbatches": measured_size, "plan": 3}
    write_json(run_dir / "summary.json", summary)
    return run_dir


@pytest.mark.parametrize("size", [4, 8])
def test_the_plan_is_that_of_the_measured_batches(run_dir: Path, larger_plans: PlanSet, size: int) -> None:
    contents = load_run(with_two_sizes(run_dir, larger_plans, measured_size=size))
    assert (contents.chosen.of.schedule.microbatches, contents.chosen.index) == (size, 3)
    assert f"time, {size} microbatches<" in page_of(contents, figures(contents))
    assert f"{size} microbatches" in figures(contents).job


def test_before_a_measurement_the_running_batches_have_the_plan(run_dir: Path, larger_plans: PlanSet) -> None:
    with_two_sizes(run_dir, larger_plans, measured_size=8)
    larger = (run_dir / "plan.m8.json").rename(run_dir / "away.json")
    contents = load_run(run_dir)
    assert contents.plans is None
    assert "plan.m8.json" in {part.file for part in contents.missing}
    larger.rename(run_dir / "plan.m8.json")
    (run_dir / "summary.json").unlink()
    chosen = load_run(run_dir).chosen
    assert (chosen.of.schedule.microbatches, chosen.index) == (8, 3)
    (run_dir / "plan.json").unlink()
    assert load_run(run_dir).chosen is not None


@pytest.mark.parametrize(("most", "rows"), [(64, 4), (3, 2)])
def test_each_gpu_has_its_row(run_dir: Path, monkeypatch: pytest.MonkeyPatch, most: int, rows: int) -> None:
    """Of many GPUs those of a stage share a row of means."""
    monkeypatch.setattr("perseus_ds.report.figures.MAX_GPU_ROWS", most)
    measured(run_dir, "one")
    contents = load_run(run_dir)
    header, cells = gpu_rows(contents)
    assert len(cells) == rows
    last = dict(zip(header, cells[-1], strict=True))
    assert "stage 1" in last[""]
    assert (last["J before"], last["J at the plan"], last["saved"]) == ("250.0", "220.0", "12.0 %")
    assert last["s before"] == ("1.300" if rows == 4 else "1.200")
    assert last["missed"] == ("28" if rows == 4 else str(10 + 28))
    assert (last["\N{DEGREE SIGN}C before"], last["\N{DEGREE SIGN}C at the plan"]) == ("63", "53")
    assert last["MHz before"] == "1410"
    assert 930 <= float(last["MHz at the plan"]) < 1410
    if rows == 4:
        names = [re.findall(r"\d+", row[0]) for row in cells]
        assert names[:3] == [["0", "0", "0"], ["1", "1", "0"], ["2", "0", "1"]], "GPU, stage, replica"
        assert cells[1][7] == "-", "it has no sensor"
    assert all(cell in page_of(contents, figures(contents)) for cell in cells[-1])


def test_a_difference_beyond_the_errors_is_explained(run_dir: Path) -> None:
    def compared(saved_j: float) -> str:
        measured(run_dir, "one", saved_j=saved_j)
        contents = load_run(run_dir)
        return compare_measured_expected(contents, figures(contents))

    missed = "15.9 % of the clock changes missed"  # 54 late and 4 overtaken of 4 x 91, as the log counts them
    assert all(words in compared(60.0) for words in ("6.0", "less than", missed))
    assert "agrees" in compared(119.0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"rank": "a", "stage": 0, "replica": 0, "totals": {}}, "'a'"),
        ({"rank": 0, "stage": 0, "replica": 0, "totals": []}, "totals is"),
        ([1], "an object"),
    ],
)
def test_a_ranks_file_that_is_wrong_is_named(run_dir: Path, content: object, why: str) -> None:
    write_json(RunDirectory(run_dir).rank(0), content)
    named = {part.file: part.why for part in load_run(run_dir).missing}
    assert all(words in named["ranks"] for words in ("rank_00000.json", why))


def test_two_runs_are_compared_in_a_table(
    write_run: WriteRun, run_writer: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = write_run(events=[attached("one")]), run_writer(tmp_path / "other", events=[attached("x")])
    words = ["report", str(one), str(other)]

    def told() -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    measured(one, "one", saved_j=60.0)
    measured(other, "x", saved_j=120.0)
    table = told()
    assert all(words in table for words in ("6.0 points", "more than"))
    assert max(map(len, table.splitlines())) <= 80
    assert not list(other.glob("*.html"))
    measured(other, "x", saved_j=61.0)
    assert "within" in told()
    (other / "summary.json").unlink()
    assert "No saving" in told()
    assert main([*words, "-o", str(tmp_path / "c.html")]) == 1
    assert "--output" in capsys.readouterr().err
