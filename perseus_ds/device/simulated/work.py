"""What one instruction asks of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Work:
    """An amount of computation.

    ``seconds`` is its duration at the maximum clock, held. ``memory_bound`` is the fraction of that which
    does not follow the core clock. ``intensity`` is its dynamic power over that of the densest kernels.
    """

    seconds: float
    memory_bound: float = 0.05
    intensity: float = 0.85

    def scaled(self, factor: float) -> Work:
        """The same kind of work, more or less of it."""
        return replace(self, seconds=self.seconds * factor)
