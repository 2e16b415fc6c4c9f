"""What adapters of DeepSpeed's engines have alike: device, release, monitor, and groups of experts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol, cast

import torch
import torch.distributed as dist

from perseus_ds.adapters.deepspeed_engine.facts import TESTED_DEEPSPEED, deepspeed_version
from perseus_ds.runtime.adapter import untested

_EVERY = 10  # DeepSpeed's own default for steps_per_print


class _HostEngine(Protocol):
    """What we use of an engine."""

    global_rank: int


class _Monitor(Protocol):
    """What we use of ``deepspeed.monitor.monitor.MonitorMaster``: TensorBoard, W&B, Comet and CSV."""

    enabled: bool

    def write_events(self, event_list: list[tuple[str, float, int]]) -> None:
        """Write (name, value, samples) to every monitor that is on."""


class EngineAdapter:
    """The members of an adapter that need no more than an engine, of whatever kind."""

    def __init__(self, engine: _HostEngine) -> None:
        self._engine = engine

    @property
    def local_rank(self) -> int:
        """As the launcher states, else as if there were one node."""
        return int(os.environ.get("LOCAL_RANK", self._engine.global_rank))

    @property
    def device(self) -> torch.device:
        """The engine's own."""
        return torch.device(getattr(self._engine, "device", "cpu"))

    def skipped_steps(self) -> int:
        """How many optimizer steps this engine has skipped so far, since fp16 gradients overflowed."""
        skipped = getattr(self._engine, "skipped_steps", 0)
        return skipped if isinstance(skipped, int) else 0

    @property
    def scalars_every(self) -> int | None:
        """DeepSpeed's ``steps_per_print``; None where no monitor is on, or on another rank than 0."""
        if self._engine.global_rank != 0 or self._monitor is None or not self._monitor.enabled:
            return None
        ask = getattr(self._engine, "steps_per_print", None)
        steps = ask() if callable(ask) else None
        return steps if isinstance(steps, int) and steps > 0 else _EVERY

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Write ``Perseus/...`` beside ``Train/Samples/...``, over the same number of samples."""
        assert self._monitor is not None
        samples = int(getattr(self._engine, "global_samples", 0))
        self._monitor.write_events([(f"Perseus/{name}", value, samples) for name, value in scalars.items()])

    @property
    def _monitor(self) -> _Monitor | None:
        return cast("_Monitor | None", getattr(self._engine, "monitor", None))

    @property
    def _untested(self) -> str:
        return untested("DeepSpeed", deepspeed_version(), TESTED_DEEPSPEED)


def coupled_by_experts(module: torch.nn.Module) -> tuple[int, ...]:
    """The ranks that this one meets in its layers of experts; none where there are none, or all are here.

    ``MOELayer`` and ``AutoEPMoELayer`` carry their group; layers may spread over groups of several sizes.

    Source: ``_set_ep_group`` in deepspeed/moe/sharded_moe.py@0.19.8.
    """
    groups = (getattr(one, "ep_group", None) for one in module.modules())
    found = {rank for group in groups if group is not None for rank in dist.get_process_group_ranks(group)}
    return tuple(sorted(found)) if len(found) > 1 else ()
