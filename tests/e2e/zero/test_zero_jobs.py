"""Jobs without a pipeline: whole ones, and what can be measured under each stage of ZeRO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch.distributed as dist
from deepspeed_hosts import ZeroHost, zero_engine
from jobs import agreed, block, events, happened, lines
from ranks import Layer, config, run_ranks
from torch import nn

from perseus_ds.adapters.deepspeed_settings import EngineSettings, read_settings
from perseus_ds.adapters.deepspeed_zero import settings_of_engine as stated
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import SyncPoint

pytestmark = pytest.mark.e2e

MOST_STEPS = 400


def until_measured(rank: int, stage: int, perseus: Mapping[str, Any]) -> int:
    host, measured = ZeroHost(zero_engine(stage, microbatches=1, perseus=perseus)), happened("measured")
    for step in range(MOST_STEPS):
        host.train()
        if agreed(measured(Path(perseus["run_dir"]))):
            return step
    raise AssertionError(f"nothing measured in {MOST_STEPS} steps")


@pytest.mark.parametrize("stage", [0, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (1, 2, 3))])
def test_a_job_without_accumulation_whose_iterations_are_long_is_measured(tmp_path: Path, stage: int) -> None:
    """A tenth slower for less energy; a window holds two runs of each computation, on each replica."""
    slower = {"policy": "max_slowdown", "max_slowdown_pct": 10.0}
    perseus = block(tmp_path, objective=slower, simulated={"mean_forward_s": 1.0})
    said = run_ranks(2, until_measured, stage, perseus)
    measured = next(one for one in events(tmp_path) if one["event"] == "measured")
    assert measured["saving_pct"] > 3.0
    assert ["1 microbatch;" in line for line in lines(said[0])].count(True) == 1
    points = json.loads((tmp_path / "profile.json").read_text())["points"]
    assert min(point["samples"] for point in points) == 4
    assert not [one for one in events(tmp_path) if one["event"] == "window_too_short"]


def observed(rank: int, stage: int, perseus: Mapping[str, Any]) -> None:
    host = ZeroHost(zero_engine(stage, perseus=perseus))
    for _ in range(4):
        host.train()


@pytest.mark.parametrize(("stage", "what"), [(1, "objective.policy"), (3, "stragglers")])
def test_what_cannot_be_done_is_said_at_the_start(tmp_path: Path, stage: int, what: str) -> None:
    said = run_ranks(2, observed, stage, block(tmp_path, mode="observe"))
    assert [what in line for line in lines(said[0])].count(True) == 1


# With overlap_comm the wait for other replicas lies inside backwards, and counts as one.


def told(rank: int, stage: int, microbatches: int, overlap: int) -> tuple[str, SyncPoint | None]:
    host = ZeroHost(zero_engine(stage, microbatches=microbatches, overlap_comm=bool(overlap)))
    try:
        adapter = host.adapter()
        return " ".join(map(str, adapter.place().left_out)), adapter.sync_point
    except EngineError as error:
        return str(error), None


def told_by(ranks: int, *job: int) -> list[tuple[str, SyncPoint | None]]:
    return [one.value for one in run_ranks(ranks, told, *job)]


@pytest.mark.parametrize(
    ("stage", "microbatches", "overlap", "says", "meets"),
    [
        (1, 3, 0, "", SyncPoint.REDUCTION),
        (2, 3, 0, "", SyncPoint.REDUCTION),
        (1, 3, 1, "0B2", SyncPoint.UNMARKED),
        (1, 1, 1, "ZeRO-1", None),
        (2, 3, 1, "ZeRO-2", None),
    ],
)
def test_what_can_be_measured_is_and_the_rest_is_refused_by_name(
    stage: int, microbatches: int, overlap: int, says: str, meets: SyncPoint | None
) -> None:
    for said, where in told_by(2, stage, microbatches, overlap):
        assert where is meets
        assert says in said if says else not said


SECTIONS: dict[str, dict[str, object]] = {
    "hybrid engine": {"hybrid_engine": {"enabled": True}},
    "DeepCompile": {"compile": {"deepcompile": True}},
    "the old form of ZeRO-1": {"zero_optimization": True},
    "ZeRO-2, overlap left to DeepSpeed": {"zero_optimization": {"stage": 2, "overlap_comm": "auto"}},
    "ZeRO-2, overlapped in words": {"zero_optimization": {"stage": 2, "overlap_comm": "true"}},
    "ZeRO-3": {"zero_optimization": {"stage": 3}},
}


def settings(rank: int, section: dict[str, object]) -> tuple[EngineSettings, EngineSettings]:
    model = nn.Sequential(Layer(8, 8))
    content = config(2, **section)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=content)
    return stated(engine), read_settings(content, replicas=dist.get_world_size())


@pytest.mark.thorough
@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_a_configuration_states_what_its_engine_states(section: dict[str, object]) -> None:
    (one,) = run_ranks(1, settings, section)
    assert one.value[0] == one.value[1]


def test_a_rank_without_replicas_waits_for_nobody() -> None:
    (answer,) = told_by(1, 2, 1, 1)
    assert answer == ("", SyncPoint.REDUCTION)
