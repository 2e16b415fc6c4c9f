"""Three shapes in turn: clocks are compared at one size, and so are the two sides of the saving."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from jobs import UNEVEN, block, lines
from ranks import Batches, Said, batches, build, config, run_ranks

from perseus_ds.profile import read_profile

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES, STEPS = 2, 46
ROWS = (1, 2, 3)
MICROBATCHES = 4


def shaped(seed: int = 3) -> Batches:
    """One row in all microbatches of a step, then two, then three."""
    generator = torch.Generator().manual_seed(seed)
    step = 0
    while True:
        for _ in range(MICROBATCHES):
            inputs = torch.randn(ROWS[step % len(ROWS)], 8, generator=generator)
            yield inputs, torch.sin(inputs)
        step += 1


def trained(rank: int, content: Mapping[str, Any], changing: bool) -> list[str]:  # noqa: FBT001
    del rank
    engine, data, losses = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches(), []
    if changing:
        data = shaped()
    for _ in range(STEPS):
        engine.reset_activation_shape()
        losses.append(float(engine.train_batch(data)).hex())
    return losses


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("shapes")
    return run_dir, run_ranks(STAGES, trained, config(perseus=block(run_dir)), True)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("alike")
    run_ranks(STAGES, trained, config(perseus=block(run_dir)), False)
    return run_dir


def test_losses_are_those_without_us(in_turn: tuple[Path, list[Said]]) -> None:
    plain = run_ranks(STAGES, trained, config(), True)
    assert [one.value for one in in_turn[1]] == [one.value for one in plain]


def test_the_profile_tells_clocks_apart_and_not_batches(
    in_turn: tuple[Path, list[Said]], alike: Path
) -> None:
    """Each point against that at the highest clock, as in a job whose batches are all alike."""
    ours, theirs = read_profile(in_turn[0] / "profile.json"), read_profile(alike / "profile.json")
    assert ours.clocks_mhz == theirs.clocks_mhz
    for key in theirs.points:
        seen, expected = ours.of(*key), theirs.of(*key)
        for one, other in zip(seen, expected, strict=True):
            assert one.time_s / seen[0].time_s == pytest.approx(other.time_s / expected[0].time_s, rel=0.015)
            assert one.energy_j / seen[0].energy_j == pytest.approx(
                other.energy_j / expected[0].energy_j, rel=0.05
            )


def test_the_saving_is_that_of_batches_that_are_all_alike(
    in_turn: tuple[Path, list[Said]], alike: Path
) -> None:
    ours, theirs = (json.loads((folder / "summary.json").read_text()) for folder in (in_turn[0], alike))
    assert ours["saving_pct"] == pytest.approx(theirs["saving_pct"], abs=1.5)
    assert abs(ours["slowdown_pct"]) < 1.0


def test_the_user_is_told(in_turn: tuple[Path, list[Said]]) -> None:
    (line,) = [line for line in lines(in_turn[1][0]) if "differ in" in line]
    assert "mean size" in line
    assert any("is for" in line and "microbatches of" in line for line in lines(in_turn[1][0]))
    assert any("measured:" in line and "microbatches of" in line for line in lines(in_turn[1][0]))
    assert not any("contradicts" in line for line in lines(in_turn[1][0]))
