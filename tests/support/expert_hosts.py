"""Small DeepSpeed-MoE jobs: experts spread over the replicas of a pipeline, or of a ZeRO engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from jobs import agreed, happened
from ranks import Layer, LayerSpec, PipelineModule, batches, config
from torch import nn

SPREAD = 2
"""Ranks that the experts of a layer are spread over."""


@dataclass
class Trained:
    """Every loss, to the last bit, and a digest of the weights."""

    losses: list[str] = field(default_factory=list)
    weights: str = ""


class Experts(nn.Module):
    """A layer of four experts, of which each token sees two; its balancing loss is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.moe = MoE(8, Layer(), num_experts=2 * SPREAD, ep_size=SPREAD, k=2, use_rts=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.moe(hidden)[0]
        return hidden + mixed


def pipeline(content: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Two stages with a layer of experts each."""
    torch.manual_seed(7)
    layers = [LayerSpec(kind) for _ in range(2) for kind in (Layer, Experts)]
    module = PipelineModule(
        layers, num_stages=2, loss_fn=nn.functional.mse_loss, partition_method="uniform", seed_layers=True
    )
    return _engine(module, content)


def without_pipeline(content: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """One engine of plain layers and experts."""
    torch.manual_seed(7)
    return _engine(nn.Sequential(Layer(), Experts(), Layer(), Experts()), content)


def train_pipeline(
    rank: int, perseus: Mapping[str, Any] | None, steps: int = 0, *, most: int = 400
) -> Trained:
    """Train so many steps, or until a saving was measured."""
    engine = pipeline(config(4, perseus=perseus))
    data = batches(3 + engine.grid.get_data_parallel_rank())
    return _until(perseus, steps or most, lambda: [engine.train_batch(data)], engine.module)


def train_zero(
    rank: int, stage: int, perseus: Mapping[str, Any] | None, steps: int = 0, *, most: int = 400
) -> Trained:
    """The same without a pipeline, three microbatches an iteration."""
    engine = without_pipeline(config(3, perseus=perseus, zero_optimization={"stage": stage}))
    data = batches(3 + rank)

    def step() -> list[torch.Tensor]:
        losses = []
        for _ in range(engine.gradient_accumulation_steps()):
            inputs, targets = next(data)
            loss = nn.functional.mse_loss(engine(inputs), targets)
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach())
        return losses

    return _until(perseus, steps or most, step, engine.module)


def _until(perseus: Mapping[str, Any] | None, most: int, step: Any, module: nn.Module) -> Trained:  # noqa: ANN401
    trained, measured = Trained(), happened("measured")
    for _ in range(most):
        trained.losses += [float(loss).hex() for loss in step()]
        if perseus is not None and agreed(measured(Path(perseus["run_dir"])), False):
            break
    data = b"".join(parameter.detach().float().numpy().tobytes() for parameter in module.parameters())
    trained.weights = hashlib.sha256(data).hexdigest()
    return trained


def _engine(module: nn.Module, content: Mapping[str, Any]) -> Any:  # noqa: ANN401
    groups = split_params_into_different_moe_groups_for_optimizer(
        {"params": list(module.parameters()), "name": "all"}
    )
    engine, *_ = deepspeed.initialize(model=module, model_parameters=groups, config=dict(content))
    return engine
