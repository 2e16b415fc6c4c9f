"""A real pipeline over images in buckets of several shapes, one bucket at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import deepspeed
import numpy as np
import pytest
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from jobs import SURE, events, lines
from ranks import Said, config, run_ranks
from torch import nn
from varied_loads import (
    course,
)

from perseus_ds.plan import read_plans
from perseus_ds.schedule import Load

# Images in buckets of one shape each, as diffusion models are trained on, and a pipeline over them.

CHANNELS, ROWS, DIFFUSION_STEPS = 4, 2, 1000
SHAPES = ((8, 8), (6, 12), (16, 8), (16, 16))
"""Height and width of the images of a bucket."""
Images = tuple[torch.Tensor, torch.Tensor]


def load_of(bucket: tuple[int, int]) -> Load:
    """What is counted of a microbatch: each image is one sequence of its elements."""
    return Load.of_shape((ROWS, CHANNELS, *bucket))


def simulated(buckets: list[tuple[int, int]]) -> dict[str, object]:
    """Settings by which simulated GPUs take as long as these images ask for."""
    loads = [load_of(bucket) for bucket in buckets]
    mean = [float(np.mean([getattr(load, name) for load in loads])) for name in ("tokens", "squares")]
    return {"mean_forward_s": 0.1, "load_terms": [0.1, 0.7, 0.2], "mean_load": mean}


def images(shapes: Iterator[tuple[int, int]], seed: int) -> Iterator[tuple[Images, torch.Tensor]]:
    """Noisy images with how noisy they are, and the noise that a model shall find."""
    generator = torch.Generator().manual_seed(seed)
    for shape in shapes:
        noise = torch.randn(ROWS, CHANNELS, *shape, generator=generator)
        steps = torch.randint(1, DIFFUSION_STEPS, (ROWS,), generator=generator)
        yield (noise * _share(steps)[:, None, None], steps), noise


def _share(steps: torch.Tensor) -> torch.Tensor:
    """How noisy images are, a row for each."""
    return (steps / DIFFUSION_STEPS)[:, None]


class Denoising(nn.Module):
    """A convolution that knows how noisy its images are, and a few multiplications."""

    def __init__(self, inner: int, *, last: bool = False) -> None:
        super().__init__()
        self.last = last
        self.up = nn.Conv2d(CHANNELS, inner, 3, padding=1)
        self.shift, self.down = nn.Linear(1, inner), nn.Conv2d(inner, CHANNELS, 1)

    def forward(self, noisy: Images) -> Images | torch.Tensor:
        image, steps = noisy
        hidden = torch.tanh(self.up(image) + self.shift(_share(steps))[:, :, None, None])
        image = image + self.down(hidden)
        return image if self.last else (image, steps)


def image_engine(content: Mapping[str, Any]) -> PipelineEngine:
    """Two stages of convolutions, the second twice as heavy, that exchange the shape of every microbatch."""
    torch.manual_seed(7)
    module = PipelineModule(
        [LayerSpec(Denoising, 4), LayerSpec(Denoising, 8, last=True)],
        num_stages=2,
        loss_fn=nn.functional.mse_loss,
        partition_method="uniform",
        seed_layers=True,
        dynamic_shape=True,
    )
    engine, *_ = deepspeed.initialize(
        model=module, model_parameters=list(module.parameters()), config=dict(content)
    )
    return engine


pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

TURNS = ((SHAPES[2], 4), (SHAPES[0], 8))
"""As many elements an iteration in large images, and in small ones."""
SIZED_STEPS = 400
NOT_SETTLED_PCT = 0.3
"""What GPUs leak less at the plan, of which audits that wait for no temperature see a part."""


def sized(rank: int, content: Mapping[str, Any], steps: int) -> list[str]:
    """One bucket an iteration: more microbatches where images are small."""
    del rank
    engine, losses = image_engine(content), []
    shapes = (shape for n in range(steps) for shape, size in [TURNS[n // 5 % 2]] for _ in range(size))
    data = images(shapes, 0)
    for n in range(steps):
        engine.set_train_batch_size(2 * TURNS[n // 5 % 2][1])
        losses.append(float(engine.train_batch(data)).hex())
    return losses


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("sized")
    drawn = [shape for shape, size in TURNS for _ in range(size)]
    block = course(run_dir, "never", simulated=simulated(drawn))
    return run_dir, run_ranks(2, sized, config(TURNS[0][1], perseus=block), SIZED_STEPS)


def test_losses_of_buckets_in_turn_are_those_without_us(in_turn: tuple[Path, list[Said]]) -> None:
    plain = run_ranks(2, sized, config(TURNS[0][1]), SIZED_STEPS)
    assert [one.value for one in in_turn[1]] == [one.value for one in plain]


def test_each_bucket_has_a_plan_and_keeps_its_time(in_turn: tuple[Path, list[Said]]) -> None:
    run_dir, said = in_turn
    for line in lines(said[0]):
        sys.stdout.write(f"\n{line}")
    plans = [read_plans(file) for file in run_dir.glob("plan.*json")]
    hopes = {one.fingerprint["microbatches"]: one.expected[0] for one in plans}
    assert set(hopes) == {"4", "8"}
    measured = [one for one in events(run_dir) if one["event"] == "measured"]
    figures = {str(one["microbatches"]): one for one in measured}
    assert set(figures) == set(hopes)
    for size, one in figures.items():
        assert one["slowdown_pct"] <= 0.2 + SURE * one["slowdown_se_pct"]
        off_pct = abs(one["saving_pct"] - hopes[size].saving_pct)
        assert off_pct <= hopes[size].within_pct + SURE * one["saving_se_pct"] + NOT_SETTLED_PCT
    unwanted = {"straggler", "disabled", "contradicted", "slower"}
    assert not unwanted & {one["event"] for one in events(run_dir)}
