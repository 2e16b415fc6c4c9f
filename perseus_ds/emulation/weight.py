"""How much a pipeline stage computes, judged by its matmul weights; no import of torch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol, runtime_checkable


class Parameter(Protocol):
    """What is asked of a parameter."""

    def dim(self) -> int:
        """Return the number of dimensions."""

    def numel(self) -> int:
        """Return the number of elements."""


@runtime_checkable
class Module(Protocol):
    """What is asked of a module."""

    def modules(self) -> Iterable[Module]:
        """Return itself and everything below it, each once."""

    def parameters(self, recurse: bool = True) -> Iterable[Parameter]:  # noqa: FBT001, FBT002 - torch's signature
        """Return the parameters, of this module alone without ``recurse``."""


_EMBEDDING = "Embedding"
_LEAST_MATMUL_DIM = 2


def weight_of_stage(module: object) -> float:
    """Count the weights that multiply on this stage.

    Those of embeddings are looked up, not multiplied, so they count only where a tied layer brings its own
    forward function (``TiedLayerSpec(forward_fn=...)``: the language-model head). What is neither module nor
    tied layer weighs nothing.

    Source: ``PipelineModule.forward_funcs``, deepspeed/runtime/pipe/module.py@0.19.8.
    """
    layers = getattr(module, "forward_funcs", None)
    return float(sum(_weight_of_layer(layer) for layer in ([module] if layers is None else layers)))


def _weight_of_layer(layer: object) -> int:
    if isinstance(layer, partial):
        return sum(_matmul(tied, embeddings=True) for tied in layer.args if isinstance(tied, Module))
    return _matmul(layer, embeddings=False) if isinstance(layer, Module) else 0


def _matmul(module: Module, *, embeddings: bool) -> int:
    return sum(
        parameter.numel()
        for part in module.modules()
        if embeddings or not _is_embedding(part)
        for parameter in part.parameters(recurse=False)
        if parameter.dim() >= _LEAST_MATMUL_DIM
    )


def _is_embedding(module: Module) -> bool:
    return any(_EMBEDDING in kind.__name__ for kind in type(module).__mro__)
