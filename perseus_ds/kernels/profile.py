"""The kernel profile: time and energy of one launch of every kernel class at every pair of clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.kernels.trace import KernelClass
from perseus_ds.profile.loads import NotNegative
from perseus_ds.profile.records import Positive
from perseus_ds.run_directory.paths import RecordFormat


@dataclass(frozen=True, slots=True)
class KernelPoint:
    """A class at one pair: means per launch over ``samples`` windows, and their standard errors."""

    pair: ClockPair
    time_s: Positive
    energy_j: Positive
    time_se_s: NotNegative = 0.0
    energy_se_j: NotNegative = 0.0
    samples: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """A class with its points; those of ``second`` were measured again after they had been chosen.

    A choice among noisy numbers picks lucky ones: only an independent measurement states what it saves.
    """

    kernel: KernelClass
    first: tuple[KernelPoint, ...]
    second: tuple[KernelPoint, ...] = ()

    def __post_init__(self) -> None:
        for points in (self.first, self.second):
            if len({point.pair for point in points}) < len(points):
                raise ProfileError(
                    f"{self.kernel} was measured twice at one pair", hint="one point per class and pair"
                )
        if all(point.pair != DEFAULT_PAIR for point in self.first):
            raise IncompleteProfileError(
                f"{self.kernel} was not measured at the default pair {DEFAULT_PAIR}",
                hint="every saving is counted against it: measure it too",
            )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A class that nothing could replay: it stays at the default pair."""

    kernel: KernelClass
    reason: str


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """All measurements of a device's kernel classes, as they stand in the file.

    ``why_not_memory`` is why the memory clock was not varied, None where it was. ``spared_w`` is what a GPU
    at rest spares (W) at each memory clock below its own.
    """

    measured: tuple[MeasuredKernel, ...]
    left_out: tuple[LeftOut, ...] = ()
    why_not_memory: str | None = None
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    spared_w: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if len({one.kernel for one in self.measured}) < len(self.measured):
            raise ProfileError("a kernel class is named twice")

    @property
    def pairs(self) -> tuple[ClockPair, ...]:
        """Every pair that was tried for some class: the default first, then from high clocks to low."""
        tried = {point.pair for one in self.measured for point in one.first} - {DEFAULT_PAIR}
        return (DEFAULT_PAIR, *sorted(tried, key=lambda pair: pair.rank, reverse=True))


KERNEL_PROFILES = RecordFormat("perseus-kernel-profile", KernelProfile, "measure the kernels again")
"""Files of kernel profiles, as `perseus-ds kernels measure` writes them."""
