"""``perseus-ds plan``: figures, files, and bad profiles refused in one line."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_program import CSV, Program, Refused
from textbook_gpu import textbook_profile

from perseus_ds.files import KEY, digest_of
from perseus_ds.plan import build, read_plans
from perseus_ds.plan.file import PlanRequest, dumps, write_request
from perseus_ds.profile import Profile, read_profile, write_profile
from perseus_ds.schedule import textbook

SIZES = ("--stages", 2, "--microbatches", 3)
KNOWN = (*SIZES, "--blocking-power-w", 70)


def test_prints_the_figures(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *KNOWN)
    assert (answer.code, answer.err) == (0, "")
    for words in ("T_min", "0.69", "T*", "saving %", "straggler %", "gap", "solved"):
        assert words in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_clock_for_each_gpu_names_what_more_would_save(perseus: Program, profile_csv: Path) -> None:
    def bound(*more: str) -> float:
        out = perseus("plan", profile_csv, *KNOWN, *more).out
        found = re.search(r"each computation at most\s+([\d.]+)\s+%", out)
        return float(found[1]) if found else 0.0

    best_pct = json.loads(perseus("plan", profile_csv, *KNOWN, "--json").out)["rows"][0]["saving_pct"]
    assert best_pct > 1.0
    assert bound("--set", "changes_per_s=0") == pytest.approx(best_pct, abs=0.1)
    assert bound() == 0.0


def test_an_assumed_blocking_power_is_said_a_profiles_own_taken(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *SIZES, "--json")
    assert "--blocking-power-w" in answer.err
    assert json.loads(answer.out)["blocking_power_w"] == 83.64
    ours = profile_csv.with_name("ours.json")
    write_profile(replace(read_profile(profile_csv), blocking_power_w=61.5), ours)
    answer = perseus("plan", ours, *SIZES, "--json")
    assert (answer.err, json.loads(answer.out)["blocking_power_w"]) == ("", 61.5)


def test_a_saving_states_how_sure_it_is(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    points = {
        key: tuple(replace(point, energy_se_j=0.01 * point.energy_j) for point in own)
        for key, own in read_profile(profile_csv).points.items()
    }
    write_profile(Profile(points), profile)
    words = ("plan", profile, *KNOWN, "-o", plan)
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
def test_waiting_takes_less_than_work(refused: Refused, profile_csv: Path, given: tuple[object, ...]) -> None:
    weak = profile_csv if given else profile_csv.with_name("weak.csv")
    if not given:
        rows = ["stage,instruction,frequency,time,energy", "0,forward,1410,0.1,5", "0,backward,1410,0.2,10"]
        weak.write_text("\n".join(rows))
    line = refused("plan", weak, "--stages", 2 if given else 1, "--microbatches", 3, *given)
    assert all(words in line for words in (str(weak), "forward", "--blocking-power-w"))


def test_times_that_may_be_milliseconds_are_doubted(perseus: Program, tmp_path: Path) -> None:
    path = tmp_path / "ms_and_mj.csv"
    rows = "0,forward,1410,50,15000\n0,backward,1410,100,30000\n"
    path.write_text(f"stage,instruction,frequency,time,energy\n{rows}")
    answer = perseus("plan", path, "--stages", 1, "--microbatches", 3, "--blocking-power-w", 70)
    assert (answer.code, "ms" in answer.err) == (0, True)


def test_a_profile_of_other_stages_is_one_line(refused: Refused, tmp_path: Path) -> None:
    unknown = CSV.replace("1,backward,1000", "7,backward,1000")
    missing = "".join(line for line in CSV.splitlines(keepends=True) if "1,backward" not in line)
    path = tmp_path / "bad.csv"
    for text, named in ((unknown, "--stages 8"), (missing, "backward")):
        path.write_text(text)
        assert named in refused("plan", path, *SIZES)


def test_the_reserve_is_said(perseus: Program, profile_csv: Path) -> None:
    reserves = (("--set", "reserve_pct=3"), ("--set", "reserve_pct=automatic"), ())
    given, found, none = (perseus("plan", profile_csv, *KNOWN, *more) for more in reserves)
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
def test_a_bad_setting_is_refused_by_name(refused: Refused, profile_csv: Path, word: str, named: str) -> None:
    line = refused("plan", profile_csv, *SIZES, "--set", word)
    assert word.partition("=")[0] in line
    assert named in line


def test_changes_are_budgeted_by_node(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    words = ("--set", "node_changes_per_s=3", "--set", "gpus_per_node=2", "-o", tmp_path / "plan.json")
    assert perseus("plan", profile_csv, *SIZES, *words).code == 0
    budget = read_plans(tmp_path / "plan.json").budget
    assert (budget.per_node_per_s, budget.gpus_per_node) == (3.0, 2)


def test_few_clocks_that_scatter_are_doubted_and_fewer_show_none(perseus: Program, profile_csv: Path) -> None:
    path = profile_csv.with_name("few.csv")
    rows = [
        f"{stage},{kind},{mhz},{(70.0 / mhz) * off},{(21000.0 + mhz**2 / 100.0) / mhz * off}"
        for stage in (0, 1)
        for kind in ("forward", "backward")
        for mhz, off in zip((1400, 1270, 1140, 1010), (1.0, 1.02 + 0.01 * stage, 0.98, 1.0), strict=True)
    ]
    path.write_text("\n".join(["stage,instruction,frequency,time,energy", *rows]) + "\n")
    answer = perseus("plan", path, *KNOWN, "--json")
    assert (answer.code, "4 clocks" in answer.err) == (0, True)
    assert json.loads(answer.out)["rows"][0]["saving_within_pct"] > 0.1
    three = json.loads(perseus("plan", profile_csv, *KNOWN, "--json").out)
    assert three["few_clocks"] == {"clocks": 3, "scatter_pct": None}


SPLIT = CSV.replace("backward", "backward_input") + "\n".join(
    row.replace("backward", "backward_weight") for row in CSV.splitlines() if "backward" in row
)


def test_two_stages_on_one_gpu(perseus: Program, tmp_path: Path) -> None:
    split_csv = tmp_path / "split.csv"
    split_csv.write_text(SPLIT + "\n")
    words = (*KNOWN, "--schedule", "zbv", "--json", "-o", tmp_path / "plan.json")
    answer = perseus("plan", split_csv, *words)
    assert answer.code == 0
    found = json.loads(answer.out)
    assert (found["stages"], found["ranks"]) == (2, 1)
    assert found["t_min_s"] == pytest.approx(3 * (0.05 + 0.06 + 2 * (0.10 + 0.12)))  # one GPU does it all
    table = perseus("show", tmp_path / "plan.json").out.splitlines()
    assert [row.split()[0] for row in table if "stage 1" in row] == ["F", "I", "W"]


INTERLEAVED = ("--schedule", "interleaved", "--set", "chunks=3")
REFUSED = {
    "whole backwards, but the schedule splits them": (("--schedule", "zbv"), "no backward input of stage 1"),
    "one chunk too many": (INTERLEAVED, "2 stages do not fill ranks of 3"),
    "chunks where there are none": (("--set", "chunks=2"), "1f1b with 2 chunks on every rank does not exist"),
    "a group where there is none": (("--set", "group=2"), "1f1b has no groups of microbatches"),
    "too few microbatches": (("--schedule", "dualpipe-v", "--set", "chunks=1"), "dualpipe-v with 1 chunks"),
}


@pytest.mark.parametrize(("words", "why"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    words: tuple[object, ...], why: str, refused: Refused, profile_csv: Path
) -> None:
    assert why in refused("plan", profile_csv, *SIZES, *words)


# A profile in a run directory: the job's own plan, unless flags say otherwise.

OF_BOTH = {"gpu": "A100", "stages": "2"}
PLAIN = {"microbatches": "3", "schedule": "gpipe 0a1b", "reserve_pct": "1.5"}
FINGERPRINT = {**OF_BOTH, **PLAIN, "clock_changes": "split auto, waits never"}
SCHEDULE = textbook("gpipe", stages=2, microbatches=3)
REQUEST = PlanRequest(SCHEDULE, FINGERPRINT, blocking_power_w=61.5, reserve_pct=1.5, split="automatic")


def measured(gpu: str = "A100") -> Profile:
    few = {key: points[::8] for key, points in textbook_profile([1.0, 1.2]).points.items()}
    return Profile(few, blocking_power_w=61.5, fingerprint={**OF_BOTH, "gpu": gpu})


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_profile(measured(), tmp_path / "profile.json")
    write_request(tmp_path / "plan_request.json", REQUEST)
    return tmp_path


@pytest.mark.thorough
def test_without_flags_it_is_the_jobs_plan(run_dir: Path, perseus: Program) -> None:
    answer = perseus("plan", run_dir / "profile.json", "-o", run_dir / "plan.json")
    assert answer.code == 0
    assert all(words in answer.err for words in ("12 instructions", "reserve_pct 1.5"))
    words = [str(run_dir / name) for name in ("profile.json", "plan_request.json", "jobs.json")]
    from perseus_ds.plan.__main__ import main as plan_beside_the_training  # the job's planner

    assert plan_beside_the_training(words) == 0
    both = [read_plans(run_dir / name) for name in ("plan.json", "jobs.json")]
    mine, theirs = (replace(plans, solve_time_s=0.0) for plans in both)
    assert dumps(mine) == dumps(theirs)


FLAGS: list[tuple[tuple[object, ...], str, dict[str, str]]] = [
    (("--set", "reserve_pct=3"), "reserve_pct 3", {"reserve_pct": "3"}),
    (("--set", "reserve_pct=automatic"), "reserve_pct automatic", {"reserve_pct": "auto"}),
    (("--set", "split=never"), "split never", {"clock_changes": "split never, waits never"}),
    (("--blocking-power-w", 70), "blocking_power_w 70", {}),
    (("--set", "switch_latency_ms=2"), "takes 2", {}),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "told", "changed"), FLAGS)
def test_what_flags_change_is_told_in_one_line(
    run_dir: Path, perseus: Program, words: tuple[object, ...], told: str, changed: dict[str, str]
) -> None:
    answer = perseus("plan", run_dir / "profile.json", *words, "-o", run_dir / "plan.json")
    assert told in answer.err.splitlines()[0]
    assert read_plans(run_dir / "plan.json").fingerprint == {**FINGERPRINT, **changed}


@pytest.mark.thorough
def test_another_schedule_is_no_plan_for_the_job(run_dir: Path, perseus: Program) -> None:
    answer = perseus("plan", run_dir / "profile.json", "--microbatches", 5, "-o", run_dir / "plan.json")
    assert all(f"{count} instructions" in answer.err for count in (20, 12))
    plans, five = read_plans(run_dir / "plan.json"), textbook("gpipe", stages=2, microbatches=5)
    assert plans.fingerprint == OF_BOTH
    assert plans.baseline == build(measured(), five, blocking_power_w=61.5, reserve_pct=1.5).baseline


def test_a_request_of_another_job_is_not_used(run_dir: Path, perseus: Program, refused: Refused) -> None:
    write_profile(measured(gpu="H100"), run_dir / "profile.json")
    answer = perseus("plan", run_dir / "profile.json", "--stages", 2, "--microbatches", 3)
    assert "plan_request.json" in answer.err
    (run_dir / "plan_request.json").unlink()
    assert refused("plan", run_dir / "profile.json").endswith("--microbatches)")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"orders": 3}', '{"orders":["0F0"],"microbatches":NaN}'])
def test_a_broken_request_is_refused_in_one_line(run_dir: Path, refused: Refused, text: str) -> None:
    (run_dir / "plan_request.json").write_text(text)
    assert refused("plan", run_dir / "profile.json").startswith(str(run_dir / "plan_request.json"))


# ``verify``, and the flags that say how clocks change.


def test_a_plan_is_proved_or_its_bound_refused(perseus: Program, refused: Refused, plan_file: Path) -> None:
    answer = perseus("verify", plan_file)
    assert answer.code == 0
    assert all(words in answer.out for words in ("recomputed", "networkx"))
    found = json.loads(perseus("verify", plan_file, "--json").out)
    assert found["plans"] > 1
    assert found["times_checked"] == found["bounds_checked"] != []
    content = json.loads(plan_file.read_text())
    content["frontier"]["effective_bound_j"][0] -= 0.02 * content["baseline"]["energy_j"]
    plan_file.write_text(json.dumps(content | {KEY: digest_of(content)}))
    line = refused("verify", plan_file)
    assert line.startswith(str(plan_file))
    assert "plan 0" in line


def test_low_waits_need_the_power_of_waiting_and_a_long_latency_is_said(
    perseus: Program, refused: Refused, profile_csv: Path
) -> None:
    line = refused("plan", profile_csv, *KNOWN, "--set", "waits=automatic")
    assert line.startswith(str(profile_csv))
    assert "blocking_w" in line
    answer = perseus("plan", profile_csv, *KNOWN, "--set", "switch_latency_ms=80")
    assert (answer.code, "80 ms" in answer.err) == (0, True)
