"""The model stages that one rank of a ``PipelineModule`` holds, and how much each computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from perseus_ds.runtime.matmul_weight import Module, matmul_weight


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
