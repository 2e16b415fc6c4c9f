"""``perseus-ds simulate``: a plan in a job of any size."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program

from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile, write_profile


def figures(perseus: Program, *words: object) -> dict[str, Any]:
    answer = perseus("simulate", *words, "--json")
    assert answer.code == 0
    found: dict[str, Any] = json.loads(answer.out)
    return found


def test_free_changes_without_noise_save_what_the_plan_promises(
    perseus: Program, plan_file: Path, profile_csv: Path
) -> None:
    found = figures(perseus, plan_file, profile_csv, "--pipelines", 3, "--tensor", 2, "--iterations", 4)
    promised = read_plans(plan_file).plan(0)
    assert found["simulated"] is True
    assert found["gpus"] == 12
    assert found["saving_pct"] == pytest.approx(promised.saving_pct, abs=1e-6)
    assert found["slowdown_pct"] == pytest.approx(promised.slowdown_pct, abs=1e-6)


def test_a_straggler_is_answered_and_the_answer_is_told(
    perseus: Program, plan_file: Path, profile_csv: Path, tmp_path: Path
) -> None:
    slow = ("--straggler", "slow:pipeline=1,factor=1.3,from=4,to=16")
    answer = perseus("simulate", plan_file, profile_csv, "--pipelines", 3, "--iterations", 20, *slow)
    assert answer.code == 0
    assert "x1.30" in answer.out
    job = (plan_file, profile_csv, "--pipelines", 3, "--iterations", 20, *slow)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("answered: false")
    answered, left_alone = figures(perseus, *job), figures(perseus, *job, "--scenario", scenario)
    assert answered["saving_pct"] > left_alone["saving_pct"] + 1.0


def test_waits_take_what_the_plan_was_made_with_where_the_profile_does_not_say(
    perseus: Program, profile_csv: Path, tmp_path: Path
) -> None:
    """A CSV has no waiting powers: the plan's own two are used, never the lower one for every wait."""
    plan, named = tmp_path / "low.json", tmp_path / "named.json"
    write_profile(replace(read_profile(profile_csv), blocking_w={1400: 70.0, 300: 30.0}), named)
    words = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70, "--set", "waits=automatic")
    assert perseus("plan", named, *words, "-o", plan).code == 0
    found = figures(perseus, plan, profile_csv)
    assert found == figures(perseus, plan, named)
    assert found["saving_pct"] == pytest.approx(read_plans(plan).plan(0).saving_pct, abs=0.3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--straggler", "slow:pipeline=9,factor=1.2"), "pipeline 9"),
        (("--straggler", "tired:pipeline=0"), "tired"),
        (("--gpu", "abacus"), "abacus"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    refused: Callable[..., str], plan_file: Path, profile_csv: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refused("simulate", plan_file, profile_csv, *words)


@pytest.mark.thorough
def test_unequal_lengths_of_microbatches_cost_time_at_default_clocks(
    perseus: Program, plan_file: Path, profile_csv: Path, tmp_path: Path
) -> None:
    (tmp_path / "lengths.csv").write_text("length\n512\n4096\n1024\n")
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("{pipelines: 2, iterations: 4, loads: {file: lengths.csv}}")
    job = (plan_file, profile_csv, "--scenario", scenario)
    unequal = figures(perseus, *job)
    even = figures(perseus, plan_file, profile_csv, "--pipelines", 2, "--iterations", 4)
    even_s, uneven_s = (found["default_clocks"]["iteration_time_s"] for found in (even, unequal))
    assert uneven_s > 1.1 * even_s
    assert "reserve_pct" in perseus("simulate", *job).err


@pytest.mark.thorough
def test_keys_of_a_scenario_do_what_they_say(
    perseus: Program, plan_file: Path, profile_csv: Path, tmp_path: Path
) -> None:
    def played(text: str) -> dict[str, Any]:
        (tmp_path / "scenario.yaml").write_text(f"{{iterations: 9, {text}}}")
        return figures(perseus, plan_file, profile_csv, "--scenario", tmp_path / "scenario.yaml")

    free = played("")
    one, same, other = (played(f"noise_pct: 2, seed: {seed}") for seed in (1, 1, 2))
    assert one == same
    assert one["slowdown_pct"] != other["slowdown_pct"]
    before, after = (
        found["default_clocks"]["iteration_time_s"] for found in (free, played("work: [1.0, 2.0]"))
    )
    assert after == pytest.approx(1.5 * before)  # the first iteration does not count
    for late in ("settle_ms: 60", "call_ms: 60", "stall_ms: 20", "call_ms: 30, queue_ms: 30"):
        slow = played(late)
        assert (slow["saving_pct"], -slow["slowdown_pct"]) < (free["saving_pct"], -free["slowdown_pct"])
