"""Listeners that an adapter is tried with: one that notes, one that leaves, one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind, Load


@dataclass(slots=True)
class NotedIteration:
    """One iteration: its instructions in order, how it ended, and whether some ``after`` was missing."""

    batch: Batch
    kinds: list[Kind] = field(default_factory=list)
    loads: list[Load | None] = field(default_factory=list)
    ended: str | None = None
    unpaired: bool = False


class Noting:
    """Notes every iteration."""

    def __init__(self, *, wants: bool = True) -> None:
        self.wants = wants
        self.iterations: list[NotedIteration] = []
        self.others = 0
        self.failures: list[Exception] = []
        self._running: Kind | None = None

    def iteration_begins(self, batch: Batch) -> bool:
        """Begin a new page."""
        self.iterations.append(NotedIteration(batch))
        self._running = None
        return self.wants

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Note it; what ran before must have ended."""
        noted = self.iterations[-1]
        noted.unpaired |= self._running is not None
        noted.kinds.append(kind)
        noted.loads.append(load)
        self._running = kind

    def after(self, kind: Kind) -> None:
        """Note the end of the same."""
        self.iterations[-1].unpaired |= self._running is not kind
        self._running = None

    def iteration_ends(self) -> None:
        """Note it."""
        self.iterations[-1].ended = "ends"

    def other_schedule_begins(self) -> None:
        """Count it."""
        self.others += 1

    def iteration_broke(self) -> None:
        """Note it."""
        self.iterations[-1].ended = "broke"

    def fail(self, error: Exception) -> bool:
        """Note it."""
        self.failures.append(error)
        return False


class Leaving(Noting):
    """Removes the hooks at its first instruction."""

    def __init__(self, remove: Callable[[], None]) -> None:
        super().__init__()
        self.calls = 0
        self._remove = remove

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Leave at once."""
        del kind, load
        self.calls += 1
        self._remove()

    def after(self, kind: Kind) -> None:
        """Nothing: a hook that was removed may still end what it began."""


class Failing(Noting):
    """Raises in one of its calls, named ``where``, or in ``fail`` as well."""

    def __init__(self, where: str, *, fails_to_leave: bool = False) -> None:
        super().__init__()
        self._fails_to_leave = fails_to_leave
        self.calls = 0
        setattr(self, where, self._raise)

    def fail(self, error: Exception) -> bool:
        """Note it, or raise as well."""
        super().fail(error)
        if self._fails_to_leave:
            raise ZeroDivisionError("a second bug of ours")
        return False

    def _raise(self, *_: object) -> bool:
        self.calls += 1
        raise ZeroDivisionError("a bug of ours")


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

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """What computes from now on belongs to this."""
        super().before(kind, load)
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
