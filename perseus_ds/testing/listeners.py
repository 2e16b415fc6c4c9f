"""Listeners that an adapter is tried with: one that notes, one that leaves, one that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Kind


@dataclass(slots=True)
class NotedIteration:
    """One iteration: its instructions in order, how it ended, and whether some ``after`` was missing."""

    batch: Batch
    kinds: list[Kind] = field(default_factory=list)
    ended: str | None = None
    unpaired: bool = False


class Noting:
    """Notes every iteration."""

    def __init__(self, *, wants: bool = True) -> None:
        self.wants = wants
        self.iterations: list[NotedIteration] = []
        self.others = 0
        self._running: Kind | None = None

    def iteration_begins(self, batch: Batch) -> bool:
        """Begin a new page."""
        self.iterations.append(NotedIteration(batch))
        self._running = None
        return self.wants

    def before(self, kind: Kind, size: int = 0) -> None:
        """Note it; what ran before must have ended."""
        del size
        noted = self.iterations[-1]
        noted.unpaired |= self._running is not None
        noted.kinds.append(kind)
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


class Leaving(Noting):
    """Removes the hooks at its first instruction."""

    def __init__(self, remove: Callable[[], None]) -> None:
        super().__init__()
        self.calls = 0
        self._remove = remove

    def before(self, kind: Kind, size: int = 0) -> None:
        """Leave at once."""
        del kind, size
        self.calls += 1
        self._remove()

    def after(self, kind: Kind) -> None:
        """Nothing: a hook that was removed may still end what it began."""


class Failing(Noting):
    """Raises at every instruction."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def before(self, kind: Kind, size: int = 0) -> None:
        """Raise, if it is the place."""
        del size
        if self._where == "before":
            raise ZeroDivisionError(f"a bug of ours at {kind.value}")

    def after(self, kind: Kind) -> None:
        """Raise, if it is the place."""
        if self._where == "after":
            raise ZeroDivisionError(f"a bug of ours at {kind.value}")
