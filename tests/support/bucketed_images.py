"""Images in buckets of one shape each, as diffusion models are trained on, and a pipeline over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import torch
from deepspeed.pipe import LayerSpec
from deepspeed.runtime.pipe.engine import PipelineEngine
from packed_pipeline import engine_of
from torch import nn
from varied_loads import PERIOD

from perseus_ds.schedule import Load

CHANNELS, ROWS, STEPS = 4, 2, 1000
SHAPES = ((8, 8), (6, 12), (16, 8), (16, 16))
"""Height and width of the images of a bucket."""
Images = tuple[torch.Tensor, torch.Tensor]


def buckets_of(replica: int, iteration: int, microbatches: int) -> list[tuple[int, int]]:
    """The bucket of each microbatch of an iteration; the same ones come again."""
    random = np.random.default_rng([replica, iteration % PERIOD])
    return [SHAPES[place] for place in random.integers(len(SHAPES), size=microbatches)]


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
        steps = torch.randint(1, STEPS, (ROWS,), generator=generator)
        yield (noise * _share(steps)[:, None, None], steps), noise


def bucketed(replica: int, microbatches: int) -> Iterator[tuple[Images, torch.Tensor]]:
    """Microbatches for ever, each of one bucket."""
    shapes = (one for n in count() for one in buckets_of(replica, n, microbatches))
    return images(shapes, replica)


def _share(steps: torch.Tensor) -> torch.Tensor:
    """How noisy images are, a row for each."""
    return (steps / STEPS)[:, None]


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
    """Two stages of convolutions, the second twice as heavy."""
    layers = [LayerSpec(Denoising, 4), LayerSpec(Denoising, 8, last=True)]
    return engine_of(layers, content, nn.functional.mse_loss)
