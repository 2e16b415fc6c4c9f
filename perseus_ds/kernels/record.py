"""What a kernel is."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.errors import ProfileError


@dataclass(frozen=True, slots=True, order=True)
class KernelClass:
    """Launches that do the same work: the same operator on the same shapes and type.

    ``shapes`` are those of the tensor arguments, in order. ``note`` distinguishes what shapes do not (a
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
