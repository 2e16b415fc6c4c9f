"""Figures, the chosen plan, and what may stand beside a frontier."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_ds.cli.report import report_table
from perseus_ds.plan import PlanSet, read_plans, write_plans
from perseus_ds.report.figures import (
    figures,
    headline,
    per_pipeline,
)
from perseus_ds.report.page import page_of
from perseus_ds.report.read import chosen_plan, load_run, short
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, RankPlace, Summary, write_places, write_summary


def _summary(**facts: object) -> Summary:
    return Summary(MeasuredSide(1.0, 1000.0, 3), MeasuredSide(1.0, 900.0, 3), False, 10.0, facts)


def test_the_job_says_which_plan_it_ran_at(plans: PlanSet) -> None:
    assert chosen_plan(plans, _summary(plan=1), []).index == 1


def test_the_journal_says_it_where_there_is_no_summary_and_its_last_word_counts(plans: PlanSet) -> None:
    events = [{"event": "running", "plan": 0}, {"event": "running", "plan": 1}, {"event": "measured"}]
    assert chosen_plan(plans, None, events).index == 1


@pytest.mark.parametrize("nonsense", [-1, 10_000, "1", None])
def test_nonsense_falls_back_to_the_plan_without_slowdown(plans: PlanSet, nonsense: object) -> None:
    assert chosen_plan(plans, _summary(plan=nonsense), []).index == 0


def test_measured_energy_is_divided_by_the_pipelines(plans: PlanSet) -> None:
    assert per_pipeline(_summary(gpus=8), plans)[0] == (1.0, 250.0)


@pytest.mark.parametrize("gpus", [None, 3, 1, "4"])
def test_energy_of_an_unknown_or_odd_number_of_gpus_is_not_compared(plans: PlanSet, gpus: object) -> None:
    assert per_pipeline(_summary(gpus=gpus), plans) == []


def test_what_the_plan_says_is_told_apart_from_what_is_to_be_expected(
    write_run: Callable[..., Path], plans: PlanSet
) -> None:
    found = figures(load_run(write_run()))
    assert found.planned.saving_pct == pytest.approx(plans.plan(1).saving_pct)
    assert found.predicted.saving_pct != pytest.approx(found.planned.saving_pct)


def test_what_was_expected_carries_its_own_errors(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    sides = [MeasuredSide(2.0, joules, 20) for joules in (1000.0, 850.0)]
    facts = {
        "predicted_saving_within_pct": 0.25,
        "predicted_slowdown_pct": 0.07,
        "predicted_slowdown_within_pct": 0.04,
    }
    write_summary(Summary(sides[0], sides[1], True, 15.2, facts), run_dir / "summary.json")
    contents = load_run(run_dir)
    lines = report_table(contents, figures(contents)).splitlines()
    (line,) = [line for line in lines if line.startswith("expected")]
    assert line.split()[1:9] == ["15.20", "+-", "0.25", "%", "+0.07", "+-", "0.04", "%"]


def test_a_measured_saving_carries_its_uncertainty(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    sides = [MeasuredSide(2.0, joules, 20, 0.001, 5.0, 18) for joules in (1000.0, 850.0)]
    summary = Summary(sides[0], sides[1], True, 15.0)
    write_summary(summary, run_dir / "summary.json")
    contents = load_run(run_dir)
    assert summary.saving_within_pct == pytest.approx(1.3, abs=0.1)
    assert headline(figures(contents)).split()[:5] == ["15.0", "\N{PLUS-MINUS SIGN}", "1.3", "%", "less"]
    within = f"{summary.saving_within_pct:.2f}"
    (line,) = [x for x in report_table(contents, figures(contents)).splitlines() if x.startswith("measured")]
    assert line.split()[1:9] == ["15.00", "+-", within, "%", "+0.00", "+-", "0.14", "%"]


def test_a_loss_is_called_more_energy(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    sides = [MeasuredSide(2.0, joules, 20, 0.001, 5.0, 18) for joules in (1000.0, 1050.0)]
    write_summary(Summary(sides[0], sides[1], True, 15.0), run_dir / "summary.json")
    assert headline(figures(load_run(run_dir))).split()[:5] == [
        "5.0",
        "\N{PLUS-MINUS SIGN}",
        "1.5",
        "%",
        "more",
    ]


def test_a_real_gpu_is_not_called_simulated(write_run: Callable[..., Path]) -> None:
    run_dir = write_run("plan", events=[])
    plans = read_plans(run_dir / "plan.json")
    real = replace(plans, fingerprint=dict(plans.fingerprint) | {"simulated": "no"})
    write_plans(real, run_dir / "plan.json")
    contents = load_run(run_dir)
    assert not contents.simulated
    assert headline(figures(contents)).split()[-4:-2] == ["predicted,", "not"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(17206.83, "17207"), (0.0123456, "0.01235"), (12.3456, "12.35"), (0.0, "0.000"), (1000, "1000")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert short(value) == text


def test_the_scope_of_every_total_is_stated(write_run: Callable[..., Path]) -> None:
    run_dir = write_run()
    assert figures(load_run(run_dir)).scope == "GPU boards only, 4 GPUs"
    places = [RankPlace(rank // 2, rank % 2, f"node-{rank // 2}", "A100") for rank in range(4)]
    write_places(places, RunDirectory(run_dir).places)
    contents = load_run(run_dir)
    found = figures(contents)
    assert found.scope == "GPU boards only, 4 GPUs on 2 nodes"
    assert found.scope in report_table(contents, found)
    assert page_of(contents, found).count(found.scope) >= 3


def test_joules_per_token_stand_beside_the_others_where_they_are_known(
    write_run: Callable[..., Path],
) -> None:
    run_dir = write_run()
    worth = {"baseline": {"energy_per_token_j": 2.0}, "perseus": {"energy_per_token_j": 1.76}}
    write_summary(_summary(gpus=4, worth=worth), run_dir / "summary.json")
    [row] = [row for row in figures(load_run(run_dir)).rows if "token" in row.name]
    assert row.cells[1:] == ["2.0000", "1.7600", "-12.00 %"]
