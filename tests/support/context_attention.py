"""Attention over a sequence that is spread over ranks: keys and values are gathered by hand, in every layer.

Megatron's own attention needs Transformer Engine for it, and that a GPU. Groups, shapes, gradients and
everything around are Megatron's.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.dot_product_attention import DotProductAttention
from torch import nn


class GatheredAttention(nn.Module):
    """This rank's queries against the keys and values of all context-parallel ranks, without a mask."""

    def __init__(self, config: Any, **words: Any) -> None:  # noqa: ANN401
        super().__init__()
        alone = copy.copy(config)
        alone.context_parallel_size = 1
        self.inner = DotProductAttention(alone, **words)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **words: Any,  # noqa: ANN401
    ) -> torch.Tensor:
        group = parallel_state.get_context_parallel_group()
        key, value = (gather_from_sequence_parallel_region(one, group=group) for one in (key, value))
        mask = torch.zeros(1, 1, query.shape[0], key.shape[0], dtype=torch.bool)
        attended: torch.Tensor = self.inner(query, key, value, mask, **words)
        return attended
