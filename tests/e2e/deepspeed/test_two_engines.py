"""Two engines trained in turn by one process, on the same GPUs: two profiles, two plans, two figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import block, lines, names, watched_gpus
from ranks import Said, batches, build, config, run_ranks

from perseus_ds.profile import read_profile
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES = 2
STEPS = 36
WIDTHS = ((8, 16), (16, 8))


def trained(rank: int, contents: tuple[Mapping[str, Any], Mapping[str, Any]]) -> tuple[list[str], int]:
    """A generator and its critic, say."""
    del rank
    engines = [build(one, stages=STAGES, inner=inner) for one, inner in zip(contents, WIDTHS, strict=True)]
    data, losses = batches(), []
    for _ in range(STEPS):
        losses += [float(engine.train_batch(data)).hex() for engine in engines]
    return losses, len(watched_gpus().made)


@pytest.fixture(scope="module")
def trained_in_turn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    """Both have the same block, run directory included; the second has larger batches."""
    run_dir = tmp_path_factory.mktemp("two")
    contents = tuple(config(size, perseus=block(run_dir)) for size in (4, 6))
    return run_dir, run_ranks(STAGES, trained, contents)


def test_losses_are_those_without_us(trained_in_turn: tuple[Path, list[Said]]) -> None:
    plain = run_ranks(STAGES, trained, (config(4), config(6)))
    assert [one.value[0] for one in trained_in_turn[1]] == [one.value[0] for one in plain]


def test_both_train_on_the_same_gpu(trained_in_turn: tuple[Path, list[Said]]) -> None:
    assert [one.value[1] for one in trained_in_turn[1]] == [1] * STAGES


def test_each_has_its_own_files_and_figures(trained_in_turn: tuple[Path, list[Said]]) -> None:
    run_dir, _ = trained_in_turn
    for folder, size, heavy in ((run_dir, 4, 1), (run_dir / "engine2", 6, 0)):
        assert {"profiled", "running", "measured"} <= set(names(folder))
        facts = json.loads((folder / "summary.json").read_text())
        assert facts["facts"]["microbatches"] == size
        forward_s = [
            read_profile(folder / "profile.json").of(stage, Kind.FORWARD)[0].time_s for stage in (0, 1)
        ]
        assert forward_s[heavy] == pytest.approx(2 * forward_s[1 - heavy], rel=0.02)
        assert facts["slowdown_pct"] < 2.0


def test_an_iteration_of_one_never_counts_the_others(trained_in_turn: tuple[Path, list[Said]]) -> None:
    """Six microbatches take longer than four by the time of two, and no iteration holds both."""
    run_dir, _ = trained_in_turn
    own_s, other_s = (
        json.loads((folder / "summary.json").read_text())["baseline"]["iteration_time_s"]
        for folder in (run_dir, run_dir / "engine2")
    )
    assert 1.2 * own_s < other_s < 1.6 * own_s


def test_lines_name_the_engine(trained_in_turn: tuple[Path, list[Said]]) -> None:
    said = lines(trained_in_turn[1][0])
    for number in (1, 2):
        assert any(f"engine {number}:" in line and "running plan" in line for line in said)
