"""What was measured: time and energy of one launch of every kernel class, at every pair of clocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from perseus_ds.device.gpu import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.kernels.trace import KernelClass


@dataclass(frozen=True, slots=True)
class KernelPoint:
    """One class at one pair: means per launch over ``samples`` windows, and their standard errors.

    ``temperature_c`` is how warm the GPU was; None: not known.
    """

    pair: ClockPair
    time_s: float
    energy_j: float
    time_se_s: float = 0.0
    energy_se_j: float = 0.0
    samples: int = 1
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """All points of a device's kernel classes.

    ``second`` holds points that were measured again, independently, after they had been chosen. A choice
    among noisy numbers picks lucky ones, and only a second look states what it is worth. ``left_out`` are
    classes that nothing could replay, each with its reason: they stay at the default pair. ``why_not_memory``
    is why the memory clock was not varied, ``None`` where it was. ``spared_w`` is what a GPU at rest spares
    (W) at each memory clock below its own.
    """

    points: Mapping[KernelClass, tuple[KernelPoint, ...]]
    second: Mapping[KernelClass, tuple[KernelPoint, ...]] = field(default_factory=dict)
    left_out: Mapping[KernelClass, str] = field(default_factory=dict)
    why_not_memory: str | None = None
    spared_w: tuple[tuple[int, float], ...] = ()
    fingerprint: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kernel, points in self.points.items():
            _check_points(kernel, points)
            if all(point.pair != DEFAULT_PAIR for point in points):
                raise IncompleteProfileError(
                    f"{kernel} was not measured at the default pair {DEFAULT_PAIR}",
                    hint="every saving is counted against it: measure it too",
                )
        for kernel, points in self.second.items():
            if kernel not in self.points:
                raise ProfileError(f"{kernel} has a second measurement and no first one")
            _check_points(kernel, points)

    @property
    def pairs(self) -> tuple[ClockPair, ...]:
        """Every pair that was tried for some class: the default first, then from high clocks to low."""
        tried = {point.pair for points in self.points.values() for point in points} - {DEFAULT_PAIR}
        return (DEFAULT_PAIR, *sorted(tried, key=lambda pair: pair.rank, reverse=True))


def _check_points(kernel: KernelClass, points: tuple[KernelPoint, ...]) -> None:
    seen: set[ClockPair] = set()
    for point in points:
        where = f"{kernel} at {point.pair}"
        if point.pair in seen:
            raise ProfileError(f"{where} was measured twice", hint="one point per class and pair")
        seen.add(point.pair)
        for name, value in (("time", point.time_s), ("energy", point.energy_j)):
            if not (math.isfinite(value) and value > 0):
                raise ProfileError(f"{where}: {name} is {value}", hint="expected a finite number above 0")
        for name, value in (("time", point.time_se_s), ("energy", point.energy_se_j)):
            if not (math.isfinite(value) and value >= 0):
                raise ProfileError(
                    f"{where}: standard error of {name} is {value}",
                    hint="expected a finite number, 0 or more",
                )
        if point.samples < 1:
            raise ProfileError(f"{where}: {point.samples} samples", hint="expected 1 or more")
