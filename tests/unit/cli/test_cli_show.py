"""``perseus-ds show``: the right plan, three forms, and bad plan files refused in one line."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, read_plans, select
from perseus_ds.plan.select import with_plan_within
from perseus_ds.profile import read_profile


@pytest.fixture
def plans(plan_file: Path) -> PlanSet:
    return read_plans(plan_file)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.thorough
def test_csv_adds_up_to_the_plan(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    plan = select(plans, Objective())
    rows = _rows(perseus("show", plan_file, "--format", "csv").out)
    end_s = max(float(row["start_s"]) + float(row["duration_s"]) for row in rows)
    worked_s = sum(float(row["duration_s"]) for row in rows)
    worked_j = sum(float(row["energy_j"]) for row in rows)
    assert end_s == pytest.approx(plan.iteration_time_s)
    assert worked_j + 70 * (2 * end_s - worked_s) == pytest.approx(plan.energy_j)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "objective"),
    [
        ((), Objective()),
        (("--max-slowdown", 10), Objective("max_slowdown", max_slowdown_pct=10.0)),
        (("--max-slowdown", 0), Objective("max_slowdown", max_slowdown_pct=0.0)),
        (("--deadline", 0.8), Objective("deadline", deadline_s=0.8)),
        (("--power-cap", 420), Objective("power_cap", power_cap_w=420.0)),
        (("--min-energy",), Objective("min_energy")),
    ],
)
def test_every_choice_goes_through_select(
    perseus: Program, plan_file: Path, plans: PlanSet, words: tuple[object, ...], objective: Objective
) -> None:
    shown = json.loads(perseus("show", plan_file, *words, "--format", "json").out)
    plan = select(with_plan_within(plans, objective), objective)
    assert shown["iteration_time_s"] == plan.iteration_time_s
    assert shown["energy_j"] == plan.energy_j
    assert len(shown["instructions"]) == 12 + sum(len(parts) - 1 for parts in plan.portions().values())


@pytest.mark.thorough
def test_the_table_is_a_grid_of_clocks(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    text = perseus("show", plan_file).out
    plan = select(plans, Objective())
    assert text.startswith(f"plan {plan.index} of {len(plans)} ")
    assert f"{plan.saving_pct:.1f} %" in text
    assert "0.69 s" in text
    rows = {line[:10]: line[11:].split() for line in text.splitlines() if "stage" in line[:10]}
    assert [row.split()[::2] for row in rows] == [["F", "0"], ["F", "1"], ["B", "0"], ["B", "1"]]
    for instruction, portions in plan.portions().items():
        clocks = plans.options[instruction.stage, instruction.kind].clock_mhz
        cell = rows[f"{instruction.kind.value} stage {instruction.stage} "][instruction.microbatch]
        assert cell == "-".join(str(clocks[option]) for option, _ in portions)


@pytest.mark.thorough
def test_a_deadline_below_t_min_says_t_min(refused: Callable[..., str], plan_file: Path) -> None:
    line = refused("show", plan_file, "--deadline", 0.5)
    assert "0.69 s" in line


@pytest.mark.thorough
def test_a_cap_that_no_plan_meets_says_the_least(refused: Callable[..., str], plan_file: Path) -> None:
    assert "10 W" in refused("show", plan_file, "--power-cap", 10)


def test_beside_a_straggler_the_wait_is_counted_on_both_sides(
    perseus: Program, plan_file: Path, plans: PlanSet
) -> None:
    baseline, straggler_s = plans.baseline, 2.0 * plans.baseline.iteration_time_s
    told = perseus("show", plan_file, "--straggler", str(straggler_s)).out
    line = " ".join(told[told.index("beside a straggler") :].split())
    waited_j = baseline.energy_j + 70.0 * 2 * (straggler_s - baseline.iteration_time_s)
    least_j = float(plans.effective_energy_j.min()) + 70.0 * 2 * straggler_s
    assert f"{least_j:.6g} J" in line
    assert f"of {waited_j:.6g} J" in line


def test_power_tells_schedulers_the_whole_frontier(perseus: Program, plan_file: Path, plans: PlanSet) -> None:
    content = json.loads(perseus("show", plan_file, "--power", "--format", "json").out)
    table = content["power_s_table"]
    assert content["default"]["iteration_time_s"] == plans.baseline.iteration_time_s
    for row in table:
        assert row["power_w"] == pytest.approx(float(plans.energy_j[row["plan"]]) / row["iteration_time_s"])
    cap_w = table[len(table) // 2]["power_w"]
    chosen = select(plans, Objective("power_cap", power_cap_w=cap_w * (1 + 1e-12)))
    assert chosen.index == table[len(table) // 2]["plan"]
    rows = _rows(perseus("show", plan_file, "--power", "--format", "csv").out)
    assert [float(row["swing_w"]) for row in rows] == [row["swing_w"] for row in table]


def test_a_profile_is_printed_in_either_form_and_read_back(
    perseus: Program, profile_csv: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "p.json", tmp_path / "p.csv"
    ours.write_text(perseus("show", profile_csv, "--format", "json").out)
    theirs.write_text(perseus("show", ours, "--format", "csv").out)
    first, last = read_profile(profile_csv), read_profile(theirs)
    assert [first.of(*key) for key in first.points] == [last.of(*key) for key in last.points]
    assert read_profile(ours).points == first.points
    assert "1400" in perseus("show", ours).out
    assert perseus("plan", ours, "--stages", 2, "--microbatches", 3).code == 0


def test_a_profile_has_no_plan_to_choose(refused: Callable[..., str], profile_csv: Path) -> None:
    assert "--plan" in refused("show", profile_csv, "--plan", 1)
    profile_csv.write_text("stage\n")
    assert "instruction" in refused("show", profile_csv)


def test_a_run_directory_stands_for_its_plan(perseus: Program, plan_file: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    without = perseus("show", run_dir)
    assert without.code == 1
    assert "plan.json" in without.err
    (run_dir / "plan.json").write_bytes(plan_file.read_bytes())
    assert perseus("show", run_dir).out == perseus("show", plan_file).out
