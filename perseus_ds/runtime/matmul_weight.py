"""How much a module computes, judged by the weights that it multiplies; no import of torch."""

from __future__ import annotations

from collections.abc import Iterable
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


def matmul_weight(module: Module, *, embeddings: bool = False) -> int:
    """Count the weights that multiply; those of embeddings are looked up, and count only on demand."""
    return sum(
        parameter.numel()
        for part in module.modules()
        if embeddings or not _is_embedding(part)
        for parameter in part.parameters(recurse=False)
        if parameter.dim() >= _LEAST_MATMUL_DIM
    )


def _is_embedding(module: Module) -> bool:
    return any(_EMBEDDING in kind.__name__ for kind in type(module).__mro__)
