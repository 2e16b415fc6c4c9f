"""A listener that sees for itself when modules compute, and whether that was announced."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind
from perseus_ds.testing.listeners import Noting

_BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT})
_HOSTS_OWN = frozenset({Kind.UNKNOWN, Kind.UNKNOWN_COMPUTE})


class Witness(Noting):
    """Notes work that no mark was open for, and the kinds that work was seen in."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.seen: set[Kind] = set()
        self._open: Kind | None = None

    def iteration_begins(self, batch: Batch) -> bool:
        """Nothing is open yet."""
        self._open = None
        return super().iteration_begins(batch)

    def before(self, kind: Kind, size: int = 0) -> None:
        """What computes from now on belongs to this."""
        super().before(kind, size)
        self._open = kind

    def after(self, kind: Kind) -> None:
        """And no longer."""
        super().after(kind)
        self._open = None

    def watch(self, modules: Iterable[torch.nn.Module]) -> None:
        """See every module without children compute, forwards and backwards."""
        for module in modules:
            for part in module.modules():
                if not any(part.children()):
                    part.register_forward_hook(self._forward)

    def _forward(self, module: torch.nn.Module, inputs: object, output: object) -> None:
        del inputs
        name = type(module).__name__
        self._note(f"forward of {name}", {Kind.FORWARD})
        tensor = output[0] if isinstance(output, tuple) else output
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            tensor.register_hook(lambda _: self._note(f"backward of {name}", _BACKWARDS))  # type: ignore[no-untyped-call]  # torch's

    def _note(self, work: str, kinds: Iterable[Kind]) -> None:
        if self._open in _HOSTS_OWN:
            return
        if self._open is None or self._open not in kinds:
            self.outside.append(f"{work} within {self._open and self._open.value}")
        else:
            self.seen.add(self._open)
