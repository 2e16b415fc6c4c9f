"""Sequences of log-normal lengths packed one after another, their boundaries, and the work that they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, pairwise
from typing import Any

import deepspeed
import numpy as np
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import nn
from varied_loads import PERIOD

SEQUENCES, MEDIAN, SIGMA, LONGEST = 4, 12.0, 0.6, 64
VOCABULARY = 32


def lengths_of(replica: int, iteration: int, microbatches: int) -> list[list[int]]:
    """Lengths of the sequences in each microbatch of an iteration; the same ones come again."""
    random = np.random.default_rng([replica, iteration % PERIOD])
    drawn = np.round(MEDIAN * random.lognormal(0.0, SIGMA, (microbatches, SEQUENCES)))
    return [[int(length) for length in one] for one in np.clip(drawn, 1, LONGEST)]


def simulated(microbatches: int, replicas: int = 2) -> dict[str, object]:
    """Settings by which simulated GPUs take as long as these loads ask for."""
    packs = [pack for r in range(replicas) for n in range(PERIOD) for pack in lengths_of(r, n, microbatches)]
    mean = [sum(length**power for pack in packs for length in pack) / len(packs) for power in (1, 2)]
    return {"mean_forward_s": 0.1, "load_terms": [0.1, 0.7, 0.2], "mean_load": mean}


def packed(replica: int, microbatches: int) -> Iterator[Mapping[str, torch.Tensor]]:
    """Microbatches for ever: tokens and labels in one row, positions within each sequence, boundaries."""
    generator = torch.Generator().manual_seed(replica)
    for iteration in count():
        for lengths in lengths_of(replica, iteration, microbatches):
            tokens = torch.randint(VOCABULARY, (1, sum(lengths) + 1), generator=generator)
            yield {
                "tokens": tokens[:, :-1],
                "labels": tokens[:, 1:],
                "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
                "cu_seqlens": torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32),
            }


# Real DeepSpeed pipelines over tuples: packed sequences with their boundaries.

WIDTH = 8
Packed = tuple[torch.Tensor, torch.Tensor]


class Embedded(nn.Module):
    """Tokens and their boundaries become hidden states and the same boundaries."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LONGEST, WIDTH)

    def forward(self, packed: Packed) -> Packed:
        tokens, boundaries = packed
        lengths = boundaries.diff().tolist()
        places = torch.cat([torch.arange(length) for length in lengths])
        return self.words(tokens) + self.places(places), boundaries


class Attending(nn.Module):
    """Attention within each sequence, and a few multiplications."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, packed: Packed) -> Packed:
        hidden, boundaries = packed
        mixed = self.mixed(hidden).chunk(3, dim=-1)
        attended = [
            nn.functional.scaled_dot_product_attention(*(one[:, a:b] for one in mixed), is_causal=True)
            for a, b in pairwise(boundaries.tolist())
        ]
        hidden = hidden + torch.cat(attended, dim=1)
        return hidden + self.down(torch.tanh(self.up(hidden))), boundaries


class Head(nn.Module):
    """Scores of every token."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, packed: Packed) -> torch.Tensor:
        scores: torch.Tensor = self.scores(packed[0])
        return scores


def packed_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over all tokens."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def packed_engine(content: Mapping[str, Any]) -> PipelineEngine:
    """Two stages over packed sequences, the second twice as heavy."""
    layers = [LayerSpec(Embedded), LayerSpec(Attending, 8), LayerSpec(Attending, 16), LayerSpec(Head)]
    return engine_of(layers, content, packed_loss)


def engine_of(layers: list[LayerSpec], content: Mapping[str, Any], loss: Any) -> PipelineEngine:  # noqa: ANN401
    """An engine of two stages that exchanges the shape of every microbatch."""
    torch.manual_seed(7)
    module = PipelineModule(
        layers, num_stages=2, loss_fn=loss, partition_method="uniform", seed_layers=True, dynamic_shape=True
    )
    engine, *_ = deepspeed.initialize(
        model=module, model_parameters=list(module.parameters()), config=dict(content)
    )
    return engine


def in_tuples(batches: Iterator[Mapping[str, torch.Tensor]]) -> Iterator[tuple[Packed, torch.Tensor]]:
    """Inputs and labels as DeepSpeed's pipelines take them: tensors without names."""
    for batch in batches:
        yield (batch["tokens"], batch["cu_seqlens"]), batch["labels"]
