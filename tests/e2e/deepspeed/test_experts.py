"""DeepSpeed-MoE under a pipeline and ZeRO: one coupled set, measured, planned, run, training unchanged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deepspeed
import pytest
import torch
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from jobs import SURE, agreed, block, events, happened, lines
from ranks import Layer, LayerSpec, PipelineModule, Said, batches, config, run_ranks
from torch import nn

# Small DeepSpeed-MoE jobs: experts spread over the replicas of a pipeline, or of a ZeRO engine.

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


pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLOWER: dict[str, Any] = {"objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0}}
AUDIT: dict[str, Any] = {"audit": {"every_iterations": 20, "iterations": 10}}

Body = Callable[..., object]
JOBS: dict[str, tuple[int, Body, tuple[int, ...], dict[str, Any], str]] = {
    "pipeline": (4, train_pipeline, (), {}, "2 replicas (coupled"),
    "ZeRO-0": (2, train_zero, (0,), SLOWER, "2 replicas (coupled"),
    "ZeRO-1": (2, train_zero, (1,), SLOWER, "2 replicas (coupled"),
    "ZeRO-2": (2, train_zero, (2,), SLOWER, "2 replicas (coupled"),
}

Done = tuple[str, Path, list[Said]]


@pytest.fixture(scope="module", params=JOBS)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    ranks, body, first, changes, _ = JOBS[request.param]
    run_dir = tmp_path_factory.mktemp("experts") / "run"
    return request.param, run_dir, run_ranks(ranks, body, *first, block(run_dir, **AUDIT, **changes))


def test_replicas_with_common_experts_are_one_set(finished: Done) -> None:
    name, run_dir, said = finished
    assert JOBS[name][-1] in lines(said[0])[0]
    assert events(run_dir)[0]["fingerprint"]["coupled"] == "2 pipelines"


def test_training_is_what_it_would_be_without_us(finished: Done) -> None:
    name, _, said = finished
    ranks, body, first, *_ = JOBS[name]
    served = [one.value for one in said]
    steps = len(served[-1].losses) // (1 if name == "pipeline" else 3)
    assert served == [one.value for one in run_ranks(ranks, body, *first, None, steps)]


def test_the_sets_plan_saves_what_was_expected(finished: Done) -> None:
    run_dir = finished[1]
    running = next(event for event in events(run_dir) if event["event"] == "running")
    summary = json.loads((run_dir / "summary.json").read_text())
    within = running["predicted_saving_within_pct"] + SURE * summary["saving_se_pct"]
    assert summary["saving_pct"] == pytest.approx(running["predicted_saving_pct"], abs=within + 0.3)
    assert summary["saving_pct"] > 2.0
    late = running["predicted_slowdown_pct"] + running["predicted_slowdown_within_pct"]
    assert summary["slowdown_pct"] < late + SURE * summary["slowdown_se_pct"] + 0.1
