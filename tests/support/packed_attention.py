"""Attention within each of several packed sequences, as Megatron's own does on GPUs.

Megatron's needs Transformer Engine for ``packed_seq_params``, and that a GPU. Layout (THD), parameters and
everything around are Megatron's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.dot_product_attention import DotProductAttention
from torch import nn


class PackedAttention(nn.Module):
    """Each sequence's queries against its own keys and values, by Megatron's attention without packing."""

    def __init__(self, config: Any, **words: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.inner = DotProductAttention(config, **words)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        packed_seq_params: PackedSeqParams,
        **words: Any,  # noqa: ANN401
    ) -> torch.Tensor:
        del attention_mask
        boundaries = packed_seq_params.cu_seqlens_q.tolist()
        attended = []
        for start, end in pairwise(boundaries):
            own = (one[start:end].unsqueeze(1) for one in (query, key, value))
            mask = torch.triu(torch.ones(1, 1, end - start, end - start, dtype=torch.bool), 1)
            attended.append(self.inner(*own, mask, **words))
        return torch.cat(attended)


def forward_step(
    data: Iterator[Mapping[str, torch.Tensor]],
    model: Any,  # noqa: ANN401
    loss: Callable[..., Any],
) -> tuple[Any, Callable[..., Any]]:
    """Run a packed microbatch as Megatron-LM does: boundaries become ``packed_seq_params``."""
    batch = next(data)
    boundaries = batch["cu_seqlens"]
    longest = int(boundaries.diff().max())
    packing = PackedSeqParams("thd", boundaries, boundaries, max_seqlen_q=longest, max_seqlen_kv=longest)
    output = model(
        batch["tokens"], batch["position_ids"], None, labels=batch["labels"], packed_seq_params=packing
    )
    return output, loss
