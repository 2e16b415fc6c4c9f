"""A memory clock and a core clock that go together."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.errors import ProfileError

AUTO = "auto"


@dataclass(frozen=True, slots=True, order=True)
class ClockPair:
    """A memory clock and a core clock; ``None`` leaves the choice to the device, as it is by default."""

    memory_mhz: int | None = None
    clock_mhz: int | None = None

    def __post_init__(self) -> None:
        for mhz in (self.memory_mhz, self.clock_mhz):
            if mhz is not None and mhz <= 0:
                raise ProfileError(f"clock pair {self}: a clock is not a positive number of MHz")

    def __str__(self) -> str:
        return f"{_text(self.memory_mhz)}/{_text(self.clock_mhz)}"

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key that counts ``auto`` as the highest clock."""
        memory, clock = self.memory_mhz, self.clock_mhz
        return (float("inf") if memory is None else memory, float("inf") if clock is None else clock)


DEFAULT_PAIR = ClockPair()
"""Both clocks as the device chooses them: what every saving is counted against."""


def _text(mhz: int | None) -> str:
    return AUTO if mhz is None else str(mhz)
