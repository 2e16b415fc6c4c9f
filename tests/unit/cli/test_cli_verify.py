"""``perseus-ds verify``, and the flags of ``plan`` that say how clocks change."""

import json
from collections.abc import Callable
from pathlib import Path

from cli_program import Program

from perseus_ds.files import KEY, digest_of

SIZES = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70)


def test_a_plan_file_is_proved(perseus: Program, plan_file: Path) -> None:
    answer = perseus("verify", plan_file)
    assert answer.code == 0
    assert "recomputed" in answer.out
    assert "networkx" in answer.out
    found = json.loads(perseus("verify", plan_file, "--json").out)
    assert found["plans"] > 1
    assert found["times_checked"] == found["bounds_checked"] != []


def test_a_bound_that_is_too_good_is_refused(refused: Callable[..., str], plan_file: Path) -> None:
    content = json.loads(plan_file.read_text())
    bounds = content["frontier"]["effective_bound_j"]
    bounds[0] -= 0.02 * content["baseline"]["energy_j"]
    plan_file.write_text(json.dumps(content | {KEY: digest_of(content)}))
    line = refused("verify", plan_file)
    assert line.startswith(str(plan_file))
    assert "plan 0" in line


def test_low_waits_need_the_power_of_waiting(refused: Callable[..., str], profile_csv: Path) -> None:
    line = refused("plan", profile_csv, *SIZES, "--set", "waits=automatic")
    assert line.startswith(str(profile_csv))
    assert "blocking_w" in line


def test_a_latency_longer_than_a_computation_is_said(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *SIZES, "--set", "switch_latency_ms=80")
    assert answer.code == 0
    assert "80 ms" in answer.err
