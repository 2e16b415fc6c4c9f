"""DeepSpeed-MoE under a pipeline and ZeRO: one coupled set, measured, planned, run, training unchanged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed_hosts import ZeroHost
from jobs import SURE, block, events, lines, until_measured
from ranks import Layer, LayerSpec, PipelineModule, batches, config, run_ranks
from torch import nn

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SPREAD = 2
"""Ranks that the experts of a layer are spread over."""
AUDIT = {"every_iterations": 20, "iterations": 10}

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
    groups = split_params_into_different_moe_groups_for_optimizer(
        {"params": list(module.parameters()), "name": "all"}
    )
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


def train(
    rank: int, job: Callable[[Perseus], tuple[Any, Step]], perseus: Perseus, steps: int
) -> tuple[list[list[str]], str]:
    torch.manual_seed(7)
    engine, step = job(perseus)
    losses = until_measured(step, perseus, steps)
    data = b"".join(parameter.detach().float().numpy().tobytes() for parameter in engine.module.parameters())
    return losses, hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("ranks", "job", "changes"),
    [(4, pipeline, {}), (2, zero, {"objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0}})],
    ids=["pipeline", "ZeRO-1"],
)
def test_replicas_with_common_experts_are_one_set_that_saves_what_was_expected(
    tmp_path: Path, ranks: int, job: Callable[..., Any], changes: dict[str, Any]
) -> None:
    said = run_ranks(ranks, train, job, block(tmp_path, audit=AUDIT, **changes), 400)
    assert "2 replicas (coupled" in lines(said[0])[0]
    assert events(tmp_path)[0]["fingerprint"]["coupled"] == "2 pipelines"
    served = [one.value for one in said]
    assert served == [one.value for one in run_ranks(ranks, train, job, None, len(served[0][0]))]
    running = next(event for event in events(tmp_path) if event["event"] == "running")
    summary = json.loads((tmp_path / "summary.json").read_text())
    within = running["predicted_saving_within_pct"] + SURE * summary["saving_se_pct"]
    assert summary["saving_pct"] == pytest.approx(running["predicted_saving_pct"], abs=within + 0.3)
    assert summary["saving_pct"] > 2.0
    late = running["predicted_slowdown_pct"] + running["predicted_slowdown_within_pct"]
    assert summary["slowdown_pct"] < late + SURE * summary["slowdown_se_pct"] + 0.1
