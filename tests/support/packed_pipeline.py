"""Real DeepSpeed pipelines over tuples: packed sequences with their boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from packed_sequences import LONGEST, VOCABULARY
from torch import nn

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
