"""``perseus-ds verify``, and the flags of ``plan`` that say how clocks change."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program

from perseus_ds.files.digest import KEY, digest_of

SIZES = ("--stages", 2, "--microbatches", 3, "--blocking-power-w", 70)


def test_a_plan_file_is_proved(perseus: Program, plan_file: Path) -> None:
    answer = perseus("verify", plan_file)
    assert answer.code == 0
    assert "recomputed" in answer.out
    assert "networkx" in answer.out


def test_a_bound_that_is_too_good_is_refused(refused: Callable[..., str], plan_file: Path) -> None:
    content = json.loads(plan_file.read_text())
    bounds = content["frontier"]["effective_bound_j"]
    bounds[0] -= 0.02 * content["baseline"]["energy_j"]
    plan_file.write_text(json.dumps(content | {KEY: digest_of(content)}))
    line = refused("verify", plan_file)
    assert line.startswith(str(plan_file))
    assert "plan 0" in line


def test_low_waits_save_more(perseus: Program, profile_csv: Path, tmp_path: Path) -> None:
    path = tmp_path / "low.json"
    low = ("--waits", "automatic", "--wait-power-w", "1400:70,400:40", "--switch-latency-ms", 4, "-o", path)
    found = [
        json.loads(perseus("plan", profile_csv, *SIZES, *words, "--json").out)["rows"][0]["saving_pct"]
        for words in ((), low)
    ]
    assert found[1] > found[0] + 1.0
    assert perseus("verify", path).code == 0


def test_low_waits_need_the_power_of_waiting(refused: Callable[..., str], profile_csv: Path) -> None:
    line = refused("plan", profile_csv, *SIZES, "--waits", "automatic")
    assert line.startswith(str(profile_csv))
    assert "--wait-power-w" in line


def test_a_latency_longer_than_a_computation_is_said(perseus: Program, profile_csv: Path) -> None:
    answer = perseus("plan", profile_csv, *SIZES, "--switch-latency-ms", 80)
    assert answer.code == 0
    assert "80 ms" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("--switch-latency-ms", -1),
        ("--wait-power-w", "1400"),
        ("--wait-power-w", "9:1,9:2"),
        ("--split", "no"),
    ],
)
def test_bad_flags_are_wrong_usage(perseus: Program, profile_csv: Path, words: tuple[object, ...]) -> None:
    with pytest.raises(SystemExit) as end:
        perseus("plan", profile_csv, *SIZES, *words)
    assert end.value.code == 2
