"""One pipeline engine of DeepSpeed, as the runtime sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch

from perseus_ds.adapters.deepspeed.hooks import Hooks
from perseus_ds.adapters.deepspeed.orders import order_of, unknown_of
from perseus_ds.adapters.deepspeed.seam import PipelineEngine, PipeSchedule, check
from perseus_ds.adapters.deepspeed_engine.adapter import EngineAdapter, coupled_by_experts
from perseus_ds.adapters.deepspeed_engine.facts import deepspeed_version
from perseus_ds.runtime.adapter import InstructionListener, Place, SyncPoint
from perseus_ds.runtime.joining import joined
from perseus_ds.runtime.matmul_weight import Module, matmul_weight
from perseus_ds.runtime.module_words import modules_in_words
from perseus_ds.schedule import Kind, Schedule


class DeepSpeedAdapter(EngineAdapter):
    """A `PipelineEngine`, and the schedule object of its first training batch on this rank."""

    name = "deepspeed"
    sync_point = SyncPoint.REDUCTION
    adjoining = True
    """Nothing is computed between two instructions (``PipelineEngine._exec_schedule``, 0.12.6 to 0.19.8)."""

    _engine: PipelineEngine

    def __init__(self, engine: PipelineEngine, pipe_schedule: PipeSchedule) -> None:
        super().__init__(engine)
        self._pipe_schedule = pipe_schedule
        self._module = cast("torch.nn.Module", vars(engine)["_modules"]["module"])
        self._silent = frozenset() if getattr(self._module, "tied_comms", None) else {Kind.REDUCE_TIED}
        self._hooks: Hooks | None = None
        self._reads_ahead = False

    @property
    def _present(self) -> PipeSchedule:
        """The schedule object of the training batch that began last."""
        return (self._hooks and self._hooks.present) or self._pipe_schedule

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
            untested=self._untested,
            coupled=coupled_by_experts(self._module),
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
        self._hooks.reads_ahead = self._reads_ahead
        self._hooks.install()

    def read_ahead(self) -> bool:
        """Count the microbatches of an iteration before it begins, on the first stage."""
        self._reads_ahead = True
        return True

    def remove(self) -> None:
        """Take them out again."""
        if self._hooks is not None:
            self._hooks.remove()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One model stage on this rank: its parameters, and the weights among them that multiply."""

    parameters: int
    weight: float


def chunks_of(module: object, *, rank: int, ranks: int) -> Mapping[int, Chunk]:
    """Return stage ``rank``, and with DualPipe-V its mirror ``2 * ranks - 1 - rank`` as well.

    A layer that two chunks of a rank share counts in both.

    Source: ``PipelineModule.forward_funcs``, ``DualPipeVModule.phase_funcs``, deepspeed@0.19.8.
    """
    phases = cast("list[list[object]] | None", getattr(module, "phase_funcs", None))
    if phases is not None:
        first, second = phases
        return {rank: _chunk(first), 2 * ranks - 1 - rank: _chunk(second)}
    whole = cast("Module", module)
    layers = getattr(module, "forward_funcs", None)
    return {rank: Chunk(_count([whole]), weight_of([module] if layers is None else layers))}


def weight_of(layers: Iterable[object]) -> float:
    """Count the weights that multiply in some layers.

    An embedding counts only where a tied layer brings its own forward function
    (``TiedLayerSpec(forward_fn=...)``: the language-model head). What is neither module nor tied layer weighs
    nothing.
    """
    return float(sum(_weight_of_layer(layer) for layer in layers))


def _chunk(layers: list[object]) -> Chunk:
    modules = [part for layer in layers for part in _modules(layer)]
    return Chunk(_count(modules), weight_of(layers))


def _count(modules: Iterable[Module]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def _modules(layer: object) -> list[Module]:
    parts = layer.args if isinstance(layer, partial) else (layer,)
    return [part for part in parts if isinstance(part, Module)]


def _weight_of_layer(layer: object) -> int:
    tied = isinstance(layer, partial)
    return sum(matmul_weight(part, embeddings=tied) for part in _modules(layer))
