"""Jobs of torch's pipelining that are switched on by a file, refused, or left: training goes on untouched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jobs import events, lines
from pipelines import Pipeline
from ranks import run_ranks
from torch.distributed.pipelining import schedules

import perseus_ds
from perseus_ds.adapters import torch_pipelining

pytestmark = pytest.mark.e2e


def block(run_dir: Path) -> dict[str, Any]:
    return {"run_dir": str(run_dir), "device": "simulated", "mode": "observe"}


def train(rank: int, name: str, steps: int) -> list[list[str]]:
    pipeline = Pipeline(name, 4)
    return [pipeline.train() for _ in range(steps)]


def by_file(rank: int, name: str, file: str) -> tuple[list[list[str]], bool]:
    os.environ["PERSEUS_CONFIG"] = file
    torch_pipelining.watch(schedules)
    pipeline = Pipeline(name, 4)
    losses = [pipeline.train() for _ in range(3)]
    return losses, "_maybe_compute_loss" in vars(pipeline.schedule)


def with_custom_function(rank: int, run_dir: Path) -> tuple[list[list[str]], list[str]]:
    pipeline = Pipeline("ZBV", 4)
    schedule = pipeline.schedule
    schedule.register_custom_function(schedules.UNSHARD, lambda action, context: None)
    perseus_ds.attach(schedule, config=block(run_dir))
    return [pipeline.train() for _ in range(3)], list(vars(schedule))


def detached(rank: int, run_dir: Path) -> tuple[list[list[str]], bool]:
    pipeline = Pipeline("Interleaved", 4)
    held = [pipeline.schedule, *pipeline.stages]
    perseus_ds.attach(pipeline.schedule, config=block(run_dir))
    losses = [pipeline.train()]
    listening = "forward_one_chunk" in vars(pipeline.stages[0])
    perseus_ds.detach(pipeline.schedule)
    losses += [pipeline.train() for _ in range(2)]
    ours = {"step", "_maybe_compute_loss", "forward_one_chunk", "backward_one_chunk"}
    return losses, listening and not any(ours & vars(one).keys() for one in held)


@pytest.mark.parametrize("name", ["1F1B", "InterleavedZeroBubble"])
def test_a_file_switches_it_on(tmp_path: Path, name: str) -> None:
    file = tmp_path / "perseus.json"
    file.write_text(json.dumps(block(tmp_path / "run")))
    answers = [said.value for said in run_ranks(2, by_file, name, str(file))]
    assert [on for _, on in answers] == [True, True]
    assert [losses for losses, _ in answers] == [said.value for said in run_ranks(2, train, name, 3)]
    attached = events(tmp_path / "run")[0]
    assert attached["event"] == "attached"
    assert attached["fingerprint"]["inputs"] == "8x8"


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said = run_ranks(2, by_file, "1F1B", str(tmp_path / "none.json"))
    assert [on for _, on in (one.value for one in said)] == [False, False]
    assert ["none.json" in line for line in lines(said[0])] == [True]


def test_custom_functions_are_refused_with_the_reason_and_training_goes_on(tmp_path: Path) -> None:
    said = run_ranks(2, with_custom_function, tmp_path / "run")
    assert ["UNSHARD" in line for line in lines(said[0])] == [True]
    assert [one.value[0] for one in said] == [one.value for one in run_ranks(2, train, "ZBV", 3)]
    assert all("step" not in one.value[1] for one in said)


def test_detaching_gives_everything_back(tmp_path: Path) -> None:
    said = run_ranks(2, detached, tmp_path / "run")
    assert [one.value[1] for one in said] == [True, True]
    assert [one.value[0] for one in said] == [one.value for one in run_ranks(2, train, "Interleaved", 3)]
