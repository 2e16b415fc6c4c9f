"""``perseus-ds simulate``: a plan in a job of any size."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program, Refused

from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile, write_profile

Job = tuple[Path, Path]


@pytest.fixture
def job(plan_file: Path, profile_csv: Path) -> Job:
    return plan_file, profile_csv


def figures(perseus: Program, *words: object) -> dict[str, Any]:
    answer = perseus("simulate", *words, "--json")
    assert answer.code == 0
    found: dict[str, Any] = json.loads(answer.out)
    return found


def scenario(job: Job, text: str) -> tuple[str, Path]:
    path = job[0].with_name("scenario.yaml")
    path.write_text(text)
    return "--scenario", path


def test_free_changes_without_noise_save_what_the_plan_promises(perseus: Program, job: Job) -> None:
    found = figures(perseus, *job, "--pipelines", 3, "--tensor", 2, "--iterations", 4)
    promised = read_plans(job[0]).plan(0)
    assert (found["simulated"], found["gpus"]) == (True, 12)
    assert found["saving_pct"] == pytest.approx(promised.saving_pct, abs=1e-6)
    assert found["slowdown_pct"] == pytest.approx(promised.slowdown_pct, abs=1e-6)


def test_a_straggler_is_answered_and_the_answer_is_told(perseus: Program, job: Job) -> None:
    slow = ("--straggler", "slow:pipeline=1,factor=1.3,from=4,to=16")
    words = (*job, "--pipelines", 3, "--iterations", 20, *slow)
    answer = perseus("simulate", *words)
    assert (answer.code, "x1.30" in answer.out) == (0, True)
    left_alone = figures(perseus, *words, *scenario(job, "answered: false"))
    assert figures(perseus, *words)["saving_pct"] > left_alone["saving_pct"] + 1.0


def test_waits_take_what_the_plan_was_made_with(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    """A CSV has no waiting powers: the plan's own two are used, never the lower one for every wait."""
    plan, named = tmp_path / "low.json", tmp_path / "named.json"
    write_profile(replace(read_profile(profile_csv), blocking_w={1400: 70.0, 300: 30.0}), named)
    words = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70, "--set", "waits=automatic")
    assert perseus("plan", named, *words, "-o", plan).code == 0
    found = figures(perseus, plan, profile_csv)
    assert found == figures(perseus, plan, named)
    assert found["saving_pct"] == pytest.approx(read_plans(plan).plan(0).saving_pct, abs=0.3)


def test_what_makes_no_sense_is_one_line(refused: Refused, job: Job) -> None:
    assert "pipeline 9" in refused("simulate", *job, "--straggler", "slow:pipeline=9,factor=1.2")
    assert "tired" in refused("simulate", *job, "--straggler", "tired:pipeline=0")
    assert "abacus" in refused("simulate", *job, "--gpu", "abacus")


@pytest.mark.thorough
def test_unequal_lengths_of_microbatches_cost_time_at_default_clocks(perseus: Program, job: Job) -> None:
    job[0].with_name("lengths.csv").write_text("length\n512\n4096\n1024\n")
    words = (*job, *scenario(job, "{pipelines: 2, iterations: 4, loads: {file: lengths.csv}}"))
    unequal, even = figures(perseus, *words), figures(perseus, *job, "--pipelines", 2, "--iterations", 4)
    even_s, uneven_s = (found["default_clocks"]["iteration_time_s"] for found in (even, unequal))
    assert uneven_s > 1.1 * even_s
    assert "reserve_pct" in perseus("simulate", *words).err


@pytest.mark.thorough
def test_keys_of_a_scenario_do_what_they_say(perseus: Program, job: Job) -> None:
    def played(text: str) -> dict[str, Any]:
        return figures(perseus, *job, *scenario(job, f"{{iterations: 9, {text}}}"))

    free = played("")
    one, same, other = (played(f"noise_pct: 2, seed: {seed}") for seed in (1, 1, 2))
    assert one == same
    assert one["slowdown_pct"] != other["slowdown_pct"]
    heavy = played("work: [1.0, 2.0]")
    before, after = (found["default_clocks"]["iteration_time_s"] for found in (free, heavy))
    assert after == pytest.approx(1.5 * before)  # the first iteration does not count
    for late in ("settle_ms: 60", "call_ms: 60", "stall_ms: 20", "call_ms: 30, queue_ms: 30"):
        slow = played(late)
        assert (slow["saving_pct"], -slow["slowdown_pct"]) < (free["saving_pct"], -free["slowdown_pct"])
