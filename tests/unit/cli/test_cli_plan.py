"""``perseus-ds plan``: figures, files, and bad profiles refused in one line."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_program import CSV, Program

from perseus_ds.plan import read_plans
from perseus_ds.profile import Profile, read_profile, write_profile

SIZES = ("--stages", 2, "--microbatches", 3)


def test_prints_the_figures(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *SIZES, "--blocking-power-w", 70)
    assert answer.code == 0
    assert answer.err == ""
    for words in ("T_min", "0.69", "T*", "saving %", "straggler %", "gap", "solved"):
        assert words in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_clock_for_each_gpu_names_what_one_for_each_computation_would_save(
    perseus: Program, profile_csv: Path
) -> None:
    def bound(*more: str) -> float:
        out = perseus("plan", profile_csv, *SIZES, "--blocking-power-w", 70, *more).out
        found = re.search(r"each computation at most\s+([\d.]+)\s+%", out)
        return float(found[1]) if found else 0.0

    plans = json.loads(perseus("plan", profile_csv, *SIZES, "--blocking-power-w", 70, "--json").out)
    best_pct = plans["rows"][0]["saving_pct"]
    assert best_pct > 1.0
    assert bound("--set", "changes_per_s=0") == pytest.approx(best_pct, abs=0.1)
    assert bound() == 0.0


def test_an_assumed_blocking_power_is_said(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *SIZES, "--json")
    assert "--blocking-power-w" in answer.err
    assert json.loads(answer.out)["blocking_power_w"] == 83.64


def test_a_profiles_own_blocking_power_is_taken(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours.json"
    write_profile(replace(read_profile(profile_csv), blocking_power_w=61.5), ours)
    answer = perseus("plan", ours, *SIZES, "--json")
    assert answer.err == ""
    assert json.loads(answer.out)["blocking_power_w"] == 61.5


def test_a_saving_states_how_sure_it_is(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    points = {
        key: tuple(replace(point, energy_se_j=0.01 * point.energy_j) for point in own)
        for key, own in read_profile(profile_csv).points.items()
    }
    write_profile(Profile(points), profile)
    words = ("plan", profile, *SIZES, "--blocking-power-w", 70, "-o", plan)
    row = json.loads(perseus(*words, "--json").out)["rows"][0]
    assert row["saving_within_pct"] > 0.1
    table = perseus(*words).out
    assert f"{row['saving_pct']:.2f} {row['saving_within_pct']:.2f} " in " ".join(table.split())
    assert max(map(len, table.splitlines())) <= 80
    shown = json.loads(perseus("show", plan, "--format", "json").out)
    assert shown["saving_within_pct"] == pytest.approx(row["saving_within_pct"])
    assert f"saves {row['saving_pct']:.1f} +- " in perseus("show", plan).out


def test_the_frontier_as_csv(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    path, plan = tmp_path / "frontier.csv", tmp_path / "plan.json"
    assert perseus("plan", profile_csv, *SIZES, "--frontier-csv", path, "-o", plan).code == 0
    text = path.read_text().splitlines()
    assert text[0] == "iteration_time_s,energy_j,effective_energy_j,lower_bound_j"
    rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(text)]
    plans = read_plans(plan)
    assert [row["iteration_time_s"] for row in rows] == sorted(plans.iteration_time_s.tolist())
    assert [row["energy_j"] for row in rows] == plans.energy_j.tolist()
    assert all(row["lower_bound_j"] <= row["energy_j"] * (1 + 1e-9) for row in rows)


@pytest.mark.parametrize("given", [("--blocking-power-w", 5000), ()], ids=["stated", "assumed"])
def test_a_gpu_that_waits_takes_less_than_one_that_computes(
    refused: Callable[..., str], profile_csv: Path, given: tuple[object, ...]
) -> None:
    weak = profile_csv if given else profile_csv.with_name("weak.csv")
    if not given:
        rows = ["stage,instruction,frequency,time,energy", "0,forward,1410,0.1,5", "0,backward,1410,0.2,10"]
        weak.write_text("\n".join(rows))
    line = refused("plan", weak, "--stages", 2 if given else 1, "--microbatches", 3, *given)
    assert str(weak) in line
    assert "forward" in line
    assert "--blocking-power-w" in line


def test_times_that_may_be_milliseconds_are_doubted(perseus: Program, tmp_path: Path) -> None:
    path = tmp_path / "ms_and_mj.csv"
    path.write_text(
        "stage,instruction,frequency,time,energy\n0,forward,1410,50,15000\n0,backward,1410,100,30000\n"
    )
    answer = perseus("plan", path, "--stages", 1, "--microbatches", 3, "--blocking-power-w", 70)
    assert answer.code == 0
    assert "ms" in answer.err


def _csv(tmp_path: Path, old: str, new: str) -> Path:
    path = tmp_path / "bad.csv"
    assert old in CSV
    path.write_text(CSV.replace(old, new, 1))
    return path


def test_an_unknown_stage_is_one_line(refused: Callable[..., str], tmp_path: Path) -> None:
    line = refused("plan", _csv(tmp_path, "1,backward,1000", "7,backward,1000"), *SIZES)
    assert "--stages 8" in line


def test_a_missing_computation_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "half.csv"
    path.write_text("\n".join(line for line in CSV.splitlines() if not line.startswith("1,backward")) + "\n")
    assert "backward" in refused("plan", path, *SIZES)


def test_the_reserve_is_said(perseus: Program, profile_csv: Path) -> None:
    words = ("plan", profile_csv, *SIZES, "--blocking-power-w", 70)
    given, found, none = (
        perseus(*words, *more)
        for more in (("--set", "reserve_pct=3"), ("--set", "reserve_pct=automatic"), ())
    )
    assert " 3 %" in given.out
    assert " 1 %" in found.out
    assert str(profile_csv) in found.err
    assert "vary" not in none.out


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("waits=always", "'never'"),
        ("split=no", "'never'"),
        ("reserve_pct=much", "number"),
        ("reserve_pct", "KEY=VALUE"),
        ("reserve_pc=1", "did you mean"),
        ("chunks=0", "1"),
        ("switch_latency_ms=-1", "0"),
        ("gpus_per_node=2", "node_changes_per_s"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    refused: Callable[..., str], profile_csv: Path, word: str, named: str
) -> None:
    line = refused("plan", profile_csv, *SIZES, "--set", word)
    assert word.partition("=")[0] in line
    assert named in line


def test_changes_are_budgeted_by_node(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    words = ("--set", "node_changes_per_s=3", "--set", "gpus_per_node=2", "-o", tmp_path / "plan.json")
    assert perseus("plan", profile_csv, *SIZES, *words).code == 0
    budget = read_plans(tmp_path / "plan.json").budget
    assert budget is not None
    assert (budget.per_node_per_s, budget.gpus_per_node) == (3.0, 2)


def test_few_clocks_that_scatter_are_doubted_in_a_line(perseus: Program, tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    rows = [
        f"{stage},{kind},{mhz},{(70.0 / mhz) * off},{(21000.0 + mhz**2 / 100.0) / mhz * off}"
        for stage in (0, 1)
        for kind in ("forward", "backward")
        for mhz, off in zip((1400, 1270, 1140, 1010), (1.0, 1.02 + 0.01 * stage, 0.98, 1.0), strict=True)
    ]
    path.write_text("\n".join(["stage,instruction,frequency,time,energy", *rows]) + "\n")
    answer = perseus("plan", path, *SIZES, "--blocking-power-w", 70)
    assert answer.code == 0
    assert "4 clocks" in answer.err


def test_clocks_too_few_to_see_any_scatter_are_told(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *SIZES, "--blocking-power-w", 70, "--json")
    assert json.loads(answer.out)["few_clocks"] == {"clocks": 3, "scatter_pct": None}
