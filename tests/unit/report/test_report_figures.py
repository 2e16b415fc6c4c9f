"""Figures, the chosen plan, what may stand beside a frontier, and the table that rank 0 prints."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_program import WriteRun

from perseus_ds.cli.report import report_table
from perseus_ds.errors import PerseusError
from perseus_ds.plan import PlanSet, read_plans, write_plans
from perseus_ds.report.figures import figures, headline, per_pipeline
from perseus_ds.report.page import page_of
from perseus_ds.report.read import chosen_plan, load_run, short
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import MeasuredSide, RankPlace, Summary, write_places, write_summary


def _summary(**facts: object) -> Summary:
    return Summary(MeasuredSide(1.0, 1000.0, 3), MeasuredSide(1.0, 900.0, 3), False, 10.0, facts)


def test_the_job_or_else_the_last_word_of_its_journal_says_which_plan_it_ran_at(plans: PlanSet) -> None:
    assert chosen_plan(plans, _summary(plan=1), []).index == 1
    events = [{"event": "running", "plan": 0}, {"event": "running", "plan": 1}, {"event": "measured"}]
    assert chosen_plan(plans, None, events).index == 1
    for nonsense in (-1, 10_000, "1", None):  # the plan without slowdown
        assert chosen_plan(plans, _summary(plan=nonsense), []).index == 0


def test_measured_energy_is_divided_by_the_pipelines_where_their_number_is_known(plans: PlanSet) -> None:
    for gpus, energy_j in ((2, 1000.0), (8, 250.0)):
        assert per_pipeline(_summary(gpus=gpus), plans)[0] == (1.0, energy_j)
    for gpus in (None, 3, 1, "4"):
        assert per_pipeline(_summary(gpus=gpus), plans) == []


def test_what_the_plan_says_is_told_apart_from_what_is_expected(write_run: WriteRun, plans: PlanSet) -> None:
    found = figures(load_run(write_run()))
    assert found.planned.saving_pct == pytest.approx(plans.plan(1).saving_pct)
    assert found.predicted.saving_pct != pytest.approx(found.planned.saving_pct)


PM = "\N{PLUS-MINUS SIGN}"
SURE = (0.001, 5.0, 18)


def measured(
    run_dir: Path, after_j: float, *errors: float, expected_pct: float = 15.0, **facts: float
) -> Summary:
    """Have a run measured 1 000 J before, and so much at its plan."""
    before, after = (MeasuredSide(2.0, joules, 20, *errors) for joules in (1000.0, after_j))
    summary = Summary(before, after, True, expected_pct, facts)
    write_summary(summary, run_dir / "summary.json")
    return summary


def table(run_dir: Path) -> str:
    contents = load_run(run_dir)
    return report_table(contents, figures(contents))


def told(run_dir: Path, side: str) -> list[str]:
    """The words of a side's line in the table, but for its name."""
    (line,) = [one for one in table(run_dir).splitlines() if one.startswith(side)]
    return line.split()[1:9]


def test_savings_carry_their_uncertainty_and_a_loss_is_called_more_energy(write_run: WriteRun) -> None:
    run_dir = write_run()
    errors = {"predicted_saving_within_pct": 0.25, "predicted_slowdown_within_pct": 0.04}
    measured(run_dir, 850.0, expected_pct=15.2, predicted_slowdown_pct=0.07, **errors)
    assert told(run_dir, "expected") == ["15.20", "+-", "0.25", "%", "+0.07", "+-", "0.04", "%"]
    within_pct = measured(run_dir, 850.0, *SURE).saving_within_pct
    assert within_pct == pytest.approx(1.3, abs=0.1)
    assert headline(figures(load_run(run_dir))).split()[:5] == ["15.0", PM, "1.3", "%", "less"]
    assert told(run_dir, "measured") == ["15.00", "+-", f"{within_pct:.2f}", "%", "+0.00", "+-", "0.14", "%"]
    measured(run_dir, 1050.0, *SURE)
    assert headline(figures(load_run(run_dir))).split()[:5] == ["5.0", PM, "1.5", "%", "more"]


def test_a_real_gpu_is_not_called_simulated(write_run: WriteRun) -> None:
    run_dir = write_run("plan", events=[])
    plans = read_plans(run_dir / "plan.json")
    real = replace(plans, fingerprint=dict(plans.fingerprint) | {"simulated": "no"})
    write_plans(real, run_dir / "plan.json")
    contents = load_run(run_dir)
    assert not contents.simulated
    assert headline(figures(contents)).split()[-4:-2] == ["predicted,", "not"]


def test_numbers_have_no_exponent() -> None:
    texts = {17206.83: "17207", 0.0123456: "0.01235", 12.3456: "12.35", 0.0: "0.000", 1000: "1000"}
    assert {value: short(value) for value in texts} == texts


def test_the_scope_of_every_total_is_stated(write_run: WriteRun) -> None:
    run_dir = write_run()
    assert figures(load_run(run_dir)).scope == "GPU boards only, 4 GPUs"
    places = [RankPlace(rank // 2, rank % 2, f"node-{rank // 2}", "A100") for rank in range(4)]
    write_places(places, RunDirectory(run_dir).places)
    contents = load_run(run_dir)
    found = figures(contents)
    assert found.scope == "GPU boards only, 4 GPUs on 2 nodes"
    assert found.scope in report_table(contents, found)
    assert page_of(contents, found).count(found.scope) >= 3


def test_joules_per_token_stand_beside_the_others_where_they_are_known(write_run: WriteRun) -> None:
    run_dir = write_run()
    worth = {"baseline": {"energy_per_token_j": 2.0}, "perseus": {"energy_per_token_j": 1.76}}
    write_summary(_summary(gpus=4, worth=worth), run_dir / "summary.json")
    [row] = [row for row in figures(load_run(run_dir)).rows if "token" in row.name]
    assert row.cells[1:] == ["2.0000", "1.7600", "-12.00 %"]


# The table that rank 0 prints: right figures, 80 columns, plain ASCII.


def test_a_whole_run_fits_a_log_file(write_run: WriteRun) -> None:
    text = table(write_run())
    assert text.isascii()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"2", "4", "1f1b,", "simulated", "A100-SXM4-80GB"} <= set(lines[0].split())
    assert {"12.0", "less", "+0.2", "measured", "simulated"} <= set(lines[1].split())
    assert "kWh" in lines[2], "what it is worth stands before everything else"
    cells = {tuple(line.split()[-5:]) for line in lines}
    assert {
        ("s", "1.0000", "1.0020", "+0.20", "%"),
        ("J", "1000.0", "880.00", "-12.00", "%"),
        ("W", "1000.0", "878.24", "-12.18", "%"),
    } <= cells
    measured, expected = (next(x for x in lines if x.startswith(name)) for name in ("measured", "expected"))
    assert measured.split()[:5] == ["measured", "12.00", "%", "+0.20", "%"]
    assert {"simulated,", "12", "40"} <= set(measured.split())
    assert expected.split()[:2] == ["expected", "12.50"]
    assert "agrees" in " ".join(lines)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"event": "attached", "mode": "profile"}, r"plan\.json: mode"),
        ({"event": "disabled", "reason": "the GPU was lost"}, r"summary\.json: .*GPU.*lost"),
    ],
)
def test_says_what_is_missing_and_why(write_run: WriteRun, event: dict[str, object], why: str) -> None:
    found = " ".join(table(write_run("profile", events=[event])).split())
    assert re.search(why, found)
    assert "measured" not in found


def test_a_directory_without_a_job_is_refused(tmp_path: Path) -> None:
    for run_dir, why in ((tmp_path, "written"), (tmp_path / "nowhere", "no such")):
        with pytest.raises(PerseusError, match=why):
            table(run_dir)
