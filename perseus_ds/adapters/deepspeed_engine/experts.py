"""Which ranks exchange tokens with this one: the groups of DeepSpeed's MoE layers."""

from __future__ import annotations

import torch
import torch.distributed as dist


def coupled_by_experts(module: torch.nn.Module) -> tuple[int, ...]:
    """The ranks that this one meets in its layers of experts; none where there are none, or all are here.

    ``MOELayer`` and ``AutoEPMoELayer`` carry their group; layers may spread over groups of several sizes.

    Source: ``_set_ep_group`` in deepspeed/moe/sharded_moe.py@0.19.8.
    """
    groups = (getattr(one, "ep_group", None) for one in module.modules())
    found = {rank for group in groups if group is not None for rank in dist.get_process_group_ranks(group)}
    return tuple(sorted(found)) if len(found) > 1 else ()
