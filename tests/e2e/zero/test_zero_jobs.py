"""Jobs without a pipeline: whole ones, and what can be measured under each stage of ZeRO."""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch.distributed as dist
from deepspeed_hosts import ZeroHost, zero_engine
from jobs import block, events, lines, names, until_measured
from ranks import Layer, config, run_ranks
from torch import nn

from perseus_ds.adapters.deepspeed_settings import EngineSettings, read_settings
from perseus_ds.adapters.deepspeed_zero import settings_of_engine as stated
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import SyncPoint

pytestmark = pytest.mark.e2e


def measured(rank: int, stage: int, perseus: Mapping[str, Any]) -> None:
    until_measured(ZeroHost(zero_engine(stage, microbatches=1, perseus=perseus)).train, perseus, 400)


@pytest.mark.parametrize("stage", [0, *(pytest.param(stage, marks=pytest.mark.slow) for stage in (1, 2, 3))])
def test_a_job_without_accumulation_whose_iterations_are_long_is_measured(tmp_path: Path, stage: int) -> None:
    """A tenth slower for less energy; a window holds two runs of each computation, on each replica."""
    slower = {"policy": "max_slowdown", "max_slowdown_pct": 10.0}
    perseus = block(tmp_path, objective=slower, simulated={"mean_forward_s": 1.0})
    said = run_ranks(2, measured, stage, perseus)
    assert events(tmp_path, "measured")[0]["saving_pct"] > 3.0
    assert ["1 microbatch;" in line for line in lines(said[0])].count(True) == 1
    points = json.loads((tmp_path / "profile.json").read_text())["points"]
    assert min(point["samples"] for point in points) == 4
    assert "window_too_short" not in names(tmp_path)


def evaluating(rank: int, perseus: Mapping[str, Any]) -> None:
    host, steps = ZeroHost(zero_engine(0, microbatches=1, perseus=perseus)), count(1)

    def step() -> None:
        host.train()
        if rank == 0 and next(steps) % 3 == 0:
            host.evaluate()

    until_measured(step, perseus, 400)


def test_a_rank_that_evaluates_by_itself_holds_up_no_other(tmp_path: Path) -> None:
    slower = {"policy": "max_slowdown", "max_slowdown_pct": 10.0}
    run_ranks(2, evaluating, block(tmp_path, objective=slower, simulated={"mean_forward_s": 1.0}))
    assert "profiled" in names(tmp_path)
    assert "alone" not in names(tmp_path)


def observed(rank: int, stage: int, perseus: Mapping[str, Any]) -> None:
    host = ZeroHost(zero_engine(stage, perseus=perseus))
    for _ in range(4):
        host.train()


@pytest.mark.parametrize(("stage", "what"), [(1, "objective.policy"), (3, "stragglers")])
def test_what_cannot_be_done_is_said_at_the_start(tmp_path: Path, stage: int, what: str) -> None:
    said = run_ranks(2, observed, stage, block(tmp_path, mode="observe"))
    assert [what in line for line in lines(said[0])].count(True) == 1


# With overlap_comm the wait for other replicas lies inside backwards, and counts as one.

OVERLAPS = [
    (1, 3, False, "", SyncPoint.REDUCTION),
    (2, 3, False, "", SyncPoint.REDUCTION),
    (1, 3, True, "0B2", SyncPoint.UNMARKED),
    (1, 1, True, "ZeRO-1", None),
    (2, 3, True, "ZeRO-2", None),
]
"""ZeRO stage, microbatches, overlap; what is left out or why it is refused, and where replicas meet."""


def told(rank: int, jobs: list[tuple[int, int, bool]]) -> list[tuple[str, SyncPoint | None]]:
    found: list[tuple[str, SyncPoint | None]] = []
    for stage, microbatches, overlap in jobs:
        host = ZeroHost(zero_engine(stage, microbatches=microbatches, overlap_comm=overlap))
        try:
            adapter = host.adapter()
            found.append((" ".join(map(str, adapter.place().left_out)), adapter.sync_point))
        except EngineError as error:
            found.append((str(error), None))
    return found


def test_what_can_be_measured_is_and_the_rest_is_refused_by_name() -> None:
    for one in run_ranks(2, told, [case[:3] for case in OVERLAPS]):
        for (*job, says, meets), (said, where) in zip(OVERLAPS, one.value, strict=True):
            assert where is meets, job
            assert says in said if says else not said, job
    (alone,) = run_ranks(1, told, [(2, 1, True)])
    assert alone.value == [("", SyncPoint.REDUCTION)], "a rank without replicas waits for nobody"


SECTIONS: dict[str, dict[str, object]] = {
    "hybrid engine": {"hybrid_engine": {"enabled": True}},
    "DeepCompile": {"compile": {"deepcompile": True}},
    "the old form of ZeRO-1": {"zero_optimization": True},
    "ZeRO-2, overlap left to DeepSpeed": {"zero_optimization": {"stage": 2, "overlap_comm": "auto"}},
    "ZeRO-2, overlapped in words": {"zero_optimization": {"stage": 2, "overlap_comm": "true"}},
    "ZeRO-3": {"zero_optimization": {"stage": 3}},
}


def settings(rank: int) -> dict[str, tuple[EngineSettings, EngineSettings]]:
    found = {}
    for name, section in SECTIONS.items():
        model, content = nn.Sequential(Layer(8, 8)), config(2, **section)
        parameters = list(model.parameters())
        engine, *_ = deepspeed.initialize(model=model, model_parameters=parameters, config=content)
        found[name] = stated(engine), read_settings(content, replicas=dist.get_world_size())
    return found


@pytest.mark.thorough
def test_a_configuration_states_what_its_engine_states() -> None:
    (one,) = run_ranks(1, settings)
    for name, (of_engine, of_configuration) in one.value.items():
        assert of_engine == of_configuration, name
