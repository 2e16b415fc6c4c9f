"""ZeRO with overlap_comm: the wait for other replicas lies inside backwards, and counts as one."""

from __future__ import annotations

import deepspeed
import pytest
import torch.distributed as dist
from deepspeed_hosts import ZeroHost, zero_engine
from ranks import Layer, config, run_ranks
from torch import nn

from perseus_ds.adapters.deepspeed_settings import EngineSettings, read_settings
from perseus_ds.adapters.deepspeed_zero import settings_of_engine as stated
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import SyncPoint

pytestmark = pytest.mark.e2e


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
