"""What a kernel is, and the pair of clocks that it runs at."""

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


@dataclass(frozen=True, slots=True, order=True)
class KernelClass:
    """Launches that do the same work: the same operator on the same shapes and type.

    ``shapes`` are those of the tensor arguments, in order. ``note`` tells apart what shapes do not (a
    transposed operand, a scalar that changes the work).
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ProfileError("a kernel class has no name")
        if any(size < 0 for shape in self.shapes for size in shape):
            raise ProfileError(f"{self}: a shape has a negative size")

    def __str__(self) -> str:
        shapes = ",".join(shape_text(shape) for shape in self.shapes)
        return " ".join(part for part in (f"{self.name}({shapes})", self.dtype, self.note) if part)


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape as ``8x128``; a scalar's is ``1``."""
    return "x".join(map(str, shape)) or "1"


def _text(mhz: int | None) -> str:
    return AUTO if mhz is None else str(mhz)
