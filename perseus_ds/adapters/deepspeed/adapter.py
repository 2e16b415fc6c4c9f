"""One pipeline engine of DeepSpeed, as the runtime sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import cast

import torch

from perseus_ds.adapters.deepspeed.chunks import chunks_of
from perseus_ds.adapters.deepspeed.hooks import Hooks
from perseus_ds.adapters.deepspeed.orders import order_of, unknown_of
from perseus_ds.adapters.deepspeed.seam import TESTED_DEEPSPEED, PipelineEngine, PipeSchedule, check
from perseus_ds.adapters.deepspeed_engine.facts import deepspeed_version
from perseus_ds.adapters.deepspeed_engine.monitor import scalars_every, write_scalars
from perseus_ds.runtime.adapter import InstructionListener, Place, SyncPoint, untested
from perseus_ds.runtime.joining import joined
from perseus_ds.runtime.module_words import modules_in_words
from perseus_ds.schedule import Kind, Schedule


class DeepSpeedAdapter:
    """A `PipelineEngine`, and the schedule object of its first training batch on this rank."""

    name = "deepspeed"
    sync_point = SyncPoint.REDUCTION

    def __init__(self, engine: PipelineEngine, pipe_schedule: PipeSchedule) -> None:
        self._engine = engine
        self._pipe_schedule = pipe_schedule
        self._module = cast("torch.nn.Module", vars(engine)["_modules"]["module"])
        self._silent = frozenset() if getattr(self._module, "tied_comms", None) else {Kind.REDUCE_TIED}
        self._hooks: Hooks | None = None

    @property
    def _present(self) -> PipeSchedule:
        """The schedule object of the training batch that began last."""
        return (self._hooks and self._hooks.present) or self._pipe_schedule

    @property
    def local_rank(self) -> int:
        """As the launcher says, else as if there were one node."""
        return int(os.environ.get("LOCAL_RANK", self._engine.global_rank))

    @property
    def device(self) -> torch.device:
        """The engine's own."""
        return torch.device(getattr(self._engine, "device", "cpu"))

    def place(self) -> Place:
        """Read stage, replica and this rank's own stream."""
        check(self._engine)
        rank = self._engine.stage_id
        chunks = chunks_of(self._module, rank=rank, ranks=self._engine.num_stages)
        return Place(
            pipeline_rank=rank,
            replica=self._engine.grid.get_data_parallel_rank(),
            order=order_of(self._present, rank, without=self._silent),
            parameters={stage: chunk.parameters for stage, chunk in chunks.items()},
            weights={stage: chunk.weight for stage, chunk in chunks.items()},
            dtypes=" ".join(sorted({str(p.dtype).removeprefix("torch.") for p in self._module.parameters()})),
            unknown=unknown_of(self._present),
            modules=modules_in_words([self._module], device_type=self.device.type),
            untested=untested("DeepSpeed", deepspeed_version(), TESTED_DEEPSPEED),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Join the streams as every stage's own schedule object gave them."""
        return joined(places, name=f"deepspeed.{type(self._pipe_schedule).__name__}")

    def traits(self) -> Mapping[str, str]:
        """Return what else a measurement depends on."""
        return {
            "tensor_parallel": str(self._engine.grid.model_parallel_size),
            "micro_batch_size": str(self._engine.micro_batch_size),
            "deepspeed": deepspeed_version(),
        }

    def install(self, listener: InstructionListener) -> None:
        """Put hooks into this instance."""
        self._hooks = Hooks(self._engine, listener, silent=self._silent)
        self._hooks.install()

    def remove(self) -> None:
        """Take them out again."""
        if self._hooks is not None:
            self._hooks.remove()

    @property
    def scalars_every(self) -> int | None:
        """DeepSpeed's ``steps_per_print``, where one of its monitors is on."""
        return scalars_every(self._engine)

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Hand them to DeepSpeed's own monitor."""
        write_scalars(self._engine, scalars)
