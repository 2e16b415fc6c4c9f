"""Which replica a rank belongs to, read off what its stages' modules are wrapped in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from perseus_ds.adapters.pipelining.seam import Stage
from perseus_ds.errors import UnsupportedEngineError


@dataclass(frozen=True, slots=True)
class DataParallel:
    """Where this rank stands among those that hold the same stage.

    torch numbers no replicas. The group over which the gradients are reduced does: ranks with the same
    place in it are one replica, tensor-parallel peers included. ``reduces`` is whether
    ``perform_reduce_grad`` is where replicas wait; ``gathers`` whether they also wait in every forward.
    """

    name: str
    replica: int = 0
    replicas: int = 1
    reduces: bool = False
    gathers: bool = False
    precision: str = ""

    def in_words(self) -> str:
        """What of it changes how long computations take: never how many replicas there are."""
        gathers = ", gathers in every forward" if self.gathers else ""
        return f"{self.name}{gathers}{self.precision and f', in {self.precision}'}"


class _MixedPrecision(Protocol):
    """What we use of ``MixedPrecisionPolicy``."""

    param_dtype: object


class _ParamGroup(Protocol):
    """What we use of ``FSDPParamGroup``."""

    mesh_info: object
    mp_policy: _MixedPrecision
    _reshard_after_forward: bool


class _FsdpState(Protocol):
    """What we use of ``FSDPState``."""

    _auto_reshard_after_forward: bool | None
    _fsdp_param_groups: Sequence[_ParamGroup]


def data_parallel_of(stages: Sequence[Stage]) -> DataParallel:
    """Recognise FSDP2 (also its replicated form), DDP, or neither.

    Raises:
        UnsupportedEngineError: stages, or parts of one, that are reduced over different groups.
    """
    found = {_of_module(stage.submod) for stage in stages}
    if len(found) > 1:
        raise UnsupportedEngineError(
            "the stages of one rank are wrapped in different ways: "
            + ", ".join(sorted(f"{one.name} of {one.replicas}" for one in found)),
            hint="wrap all of them alike",
        )
    return found.pop()


def _of_module(module: Module) -> DataParallel:
    if isinstance(module, DistributedDataParallel):
        group = module.process_group
        return DataParallel("DDP", dist.get_rank(group), dist.get_world_size(group))
    if isinstance(module, FSDPModule):
        return _of_fsdp(module)
    return DataParallel("none")


def _of_fsdp(module: Module) -> DataParallel:
    """Look at all groups of parameters that are gathered and reduced together.

    A root whose resharding is left to FSDP2 keeps its parameters.

    Source: ``perform_reduce_grad`` in torch/distributed/pipelining/stage.py, ``FSDPState`` in
    torch/distributed/fsdp/_fully_shard/_fsdp_state.py, both @2.13.0.
    """
    places, precisions, gathers = set(), set(), False
    try:
        for part in module.modules():
            if not isinstance(part, FSDPModule):
                continue
            state = cast("_FsdpState", part._get_fsdp_state())  # noqa: SLF001  # the seam
            kept = part is module and state._auto_reshard_after_forward  # noqa: SLF001
            for group in state._fsdp_param_groups:  # noqa: SLF001
                places.add(_place(group.mesh_info))
                precisions.add(str(group.mp_policy.param_dtype or "").removeprefix("torch."))
                gathers |= group._reshard_after_forward and not kept  # noqa: SLF001
    except AttributeError as error:
        raise UnsupportedEngineError(f"FSDP2 has changed: {error}", hint="tested: torch 2.13") from error
    if len(places) > 1:
        raise UnsupportedEngineError(
            "parts of one stage are sharded over different groups of ranks (expert parallelism): "
            "its replicas wait for each other in every layer",
            hint="train without expert parallelism, or without perseus_ds",
        )
    replica, replicas = places.pop() if places else (0, 1)
    precision = " ".join(sorted(precisions)).strip()
    return DataParallel("FSDP2", replica, replicas, reduces=True, gathers=gathers, precision=precision)


def _place(mesh_info: object) -> tuple[int, int]:
    """Return this rank's place in the group that reduces, and its size: replicated times sharded."""
    place, size = 0, 1
    for name in ("replicate_process_group", "shard_process_group"):
        group = getattr(mesh_info, name, None)
        if group is not None:
            place = place * dist.get_world_size(group) + dist.get_rank(group)
            size *= dist.get_world_size(group)
    return place, size
