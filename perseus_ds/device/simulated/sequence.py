"""Kernels one behind the other: what an instruction is made of, where a simulated GPU knows its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from perseus_ds.device.simulated.laws import AnyWork
from perseus_ds.device.simulated.roofline import KernelWork


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """Kernels in the order of their launch, each ``factor`` times as long as it states.

    The kernels themselves stay the same whatever the factor: what they take at a pair of clocks is looked up.
    """

    kernels: tuple[KernelWork, ...]
    factor: float = 1.0

    @property
    def seconds(self) -> float:
        """Duration at the maximum clock and the default memory clock, held."""
        return self.factor * sum(kernel.seconds for kernel in self.kernels)

    def scaled(self, factor: float) -> KernelSequence:
        """The same kernels, all of them longer or shorter."""
        return replace(self, factor=self.factor * factor)


def pieces(work: AnyWork | KernelSequence) -> Iterator[tuple[AnyWork, float]]:
    """Yield what is done in turn, with its duration at the maximum clock; alike neighbours are one."""
    if not isinstance(work, KernelSequence):
        yield work, work.seconds
        return
    present, seconds = work.kernels[0], 0.0
    for kernel in work.kernels:
        if kernel != present:
            yield present, seconds
            present, seconds = kernel, 0.0
        seconds += work.factor * kernel.seconds
    yield present, seconds
