"""DeepSpeed-MoE under a pipeline and ZeRO: replicas with common experts are one coupled set."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed_hosts import ZeroHost
from jobs import block, events, lines
from ranks import Layer, LayerSpec, PipelineModule, batches, config, digest_of, run_ranks
from torch import nn

pytestmark = pytest.mark.e2e

SPREAD = 2
"""Ranks that the experts of a layer are spread over."""

Step = Callable[[], list[str]]
Perseus = Mapping[str, Any] | None


class Experts(nn.Module):
    """A layer of four experts, of which each token sees two; its balancing loss is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.moe = MoE(8, Layer(), num_experts=2 * SPREAD, ep_size=SPREAD, k=2, use_rts=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.moe(hidden)[0]
        return hidden + mixed


def engine_of(module: nn.Module, content: Mapping[str, Any]) -> Any:  # noqa: ANN401
    everything = {"params": list(module.parameters()), "name": "all"}
    groups = split_params_into_different_moe_groups_for_optimizer(everything)
    return deepspeed.initialize(model=module, model_parameters=groups, config=dict(content))[0]


def pipeline(perseus: Perseus) -> tuple[Any, Step]:
    layers = [LayerSpec(kind) for _ in range(2) for kind in (Layer, Experts)]
    module = PipelineModule(
        layers, num_stages=2, loss_fn=nn.functional.mse_loss, partition_method="uniform", seed_layers=True
    )
    engine = engine_of(module, config(4, perseus=perseus))
    data = batches(3 + engine.grid.get_data_parallel_rank())
    return engine, lambda: [float(engine.train_batch(data)).hex()]


def zero(perseus: Perseus) -> tuple[Any, Step]:
    content = config(3, perseus=perseus, zero_optimization={"stage": 1})
    host = ZeroHost(engine_of(nn.Sequential(Layer(), Experts(), Layer(), Experts()), content))
    return host.engine, lambda: list(host.train())


def train(rank: int, job: Callable[[Perseus], tuple[Any, Step]], perseus: Perseus) -> tuple[object, str]:
    torch.manual_seed(7)
    engine, step = job(perseus)
    losses = [step() for _ in range(5)]
    return losses, digest_of(engine.module.parameters())


@pytest.mark.parametrize(("ranks", "job"), [(4, pipeline), (2, zero)], ids=["pipeline", "ZeRO-1"])
def test_replicas_of_common_experts_are_one_set(tmp_path: Path, ranks: int, job: Callable[..., Any]) -> None:
    said = run_ranks(ranks, train, job, block(tmp_path, mode="observe"))
    assert "2 replicas (coupled" in lines(said[0])[0]
    assert events(tmp_path)[0]["fingerprint"]["coupled"] == "2 pipelines"
    assert [one.value for one in said] == [one.value for one in run_ranks(ranks, train, job, None)]
