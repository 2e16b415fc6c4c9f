"""Ranks that exchange tokens in layers of experts, found in a model of DeepSpeed-MoE."""

from __future__ import annotations

import torch
from ranks import run_ranks
from torch import nn

from perseus_ds.adapters.deepspeed import coupled_by_experts


def coupled(rank: int) -> list[tuple[int, ...]]:
    """What ranks find with all experts on each, spread over both, and nested in a model without any above."""
    alone, both = torch.distributed.new_group([0]), torch.distributed.new_group([0, 1])
    layers = [nn.Linear(1, 1) for _ in range(3)]
    if rank == 0:
        layers[0].ep_group = alone
    layers[1].ep_group = both
    return [
        coupled_by_experts(one)
        for one in (layers[0], layers[1], nn.Sequential(nn.Tanh(), nn.Sequential(layers[1], layers[2])))
    ]


def test_experts_on_several_ranks_couple_these_ranks() -> None:
    for said in run_ranks(2, coupled):
        assert said.value == [(), (0, 1), (0, 1)]
