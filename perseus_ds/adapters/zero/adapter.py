"""One engine of DeepSpeed without a pipeline, as the runtime sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.distributed as dist

from perseus_ds.adapters.deepspeed_engine.adapter import EngineAdapter, coupled_by_experts
from perseus_ds.adapters.deepspeed_engine.facts import ZERO_GATHERS, deepspeed_version
from perseus_ds.adapters.zero.hooks import Hooks
from perseus_ds.adapters.zero.orders import resized
from perseus_ds.adapters.zero.seam import Engine, check, settings_of_engine
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.adapter import InstructionListener, Place, SyncPoint
from perseus_ds.runtime.module_words import modules_in_words
from perseus_ds.schedule import Kind, Order, Schedule, last_backwards, validate


class ZeroAdapter(EngineAdapter):
    """A `DeepSpeedEngine`, and the order that its first iteration ran in."""

    name = "zero"

    _engine: Engine

    def __init__(self, engine: Engine, order: Order) -> None:
        super().__init__(engine)
        self._order = order
        self._hooks: Hooks | None = None

    @property
    def sync_point(self) -> SyncPoint:
        """Replicas meet at the reduction, at every layer (ZeRO-3), or in the last backward.

        That one contains the wait where gradients are reduced while it runs (``overlap_comm``).
        """
        gathers = self._engine.zero_optimization_stage() >= ZERO_GATHERS
        unmarked = gathers or settings_of_engine(self._engine).waits_in_backward
        return SyncPoint.UNMARKED if unmarked else SyncPoint.REDUCTION

    def place(self) -> Place:
        """One model stage, one pipeline rank; every data-parallel rank is a replica."""
        engine = check(self._engine)
        parameters = list(engine.module.parameters())
        order = resized(self._order, engine.gradient_accumulation_steps())
        return Place(
            pipeline_rank=0,
            replica=dist.get_group_rank(engine.data_parallel_group, dist.get_rank()),
            order=order,
            parameters={0: sum(int(getattr(p, "ds_numel", p.numel())) for p in parameters)},
            weights={0: 1.0},
            dtypes=" ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
            left_out=last_backwards(order) if settings_of_engine(engine).waits_in_backward else frozenset(),
            modules=modules_in_words([engine.module], device_type=self.device.type),
            untested=self._untested,
            coupled=coupled_by_experts(engine.module),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Return the loop that all ranks run.

        Raises:
            UnsupportedEngineError: ranks whose loops differ.
        """
        if len({place.order for place in places}) != 1:
            raise UnsupportedEngineError(
                "the ranks run different training loops", hint="every rank has to run the same microbatches"
            )
        order = places[0].order
        microbatches = sum(one.kind is Kind.FORWARD for one in order)
        schedule = Schedule(f"zero-{self._engine.zero_optimization_stage()}", microbatches, (order,))
        validate(schedule)
        return schedule

    def traits(self) -> Mapping[str, str]:
        """Return what else a measurement depends on."""
        return {
            "zero_stage": str(int(self._engine.zero_optimization_stage())),
            "tensor_parallel": str(self._engine.mp_world_size),
            "micro_batch_size": str(self._engine.train_micro_batch_size_per_gpu()),
            "deepspeed": deepspeed_version(),
        }

    def install(self, listener: InstructionListener) -> None:
        """Put hooks into this instance."""
        self._hooks = Hooks(self._engine, listener)
        self._hooks.install()

    def remove(self) -> None:
        """Take them out again."""
        if self._hooks is not None:
            self._hooks.remove()
