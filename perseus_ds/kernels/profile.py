"""The kernel profile: time and energy of one launch of every kernel class at every pair of clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import IncompleteProfileError, ProfileError
from perseus_ds.kernels.trace import KernelClass
from perseus_ds.profile.loads import NotNegative
from perseus_ds.profile.records import Positive
from perseus_ds.run_directory.paths import read_record, write_record

PROFILE = "perseus-kernel-profile"


@dataclass(frozen=True, slots=True)
class KernelPoint:
    """A class at one pair: means per launch over ``samples`` windows, and their standard errors.

    ``temperature_c`` is how warm the GPU was; None: not known.
    """

    pair: ClockPair
    time_s: Positive
    energy_j: Positive
    time_se_s: NotNegative = 0.0
    energy_se_j: NotNegative = 0.0
    samples: Annotated[int, Field(ge=1)] = 1
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
        for kernel, points in (*self.points.items(), *self.second.items()):
            if len({point.pair for point in points}) < len(points):
                raise ProfileError(
                    f"{kernel} was measured twice at one pair", hint="one point per class and pair"
                )
        for kernel, points in self.points.items():
            if all(point.pair != DEFAULT_PAIR for point in points):
                raise IncompleteProfileError(
                    f"{kernel} was not measured at the default pair {DEFAULT_PAIR}",
                    hint="every saving is counted against it: measure it too",
                )
        if alone := self.second.keys() - self.points.keys():
            raise ProfileError(f"{min(alone)} has a second measurement and no first one")

    @property
    def pairs(self) -> tuple[ClockPair, ...]:
        """Every pair that was tried for some class: the default first, then from high clocks to low."""
        tried = {point.pair for points in self.points.values() for point in points} - {DEFAULT_PAIR}
        return (DEFAULT_PAIR, *sorted(tried, key=lambda pair: pair.rank, reverse=True))


@dataclass(frozen=True, slots=True)
class _MeasuredPair:
    kernel: KernelClass
    first: tuple[KernelPoint, ...]
    second: tuple[KernelPoint, ...] = ()


@dataclass(frozen=True, slots=True)
class _LeftOut:
    kernel: KernelClass
    reason: str


@dataclass(frozen=True, slots=True)
class _ProfileFile:
    """A profile as JSON can hold it: no mapping with a kernel class for its key."""

    measured: tuple[_MeasuredPair, ...]
    left_out: tuple[_LeftOut, ...]
    why_not_memory: str | None
    fingerprint: Mapping[str, str]
    spared_w: tuple[tuple[int, float], ...] = ()


def write_kernel_profile(profile: KernelProfile, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    content = _ProfileFile(
        tuple(
            _MeasuredPair(kernel, first, profile.second.get(kernel, ()))
            for kernel, first in profile.points.items()
        ),
        tuple(_LeftOut(kernel, reason) for kernel, reason in profile.left_out.items()),
        profile.why_not_memory,
        profile.fingerprint,
        profile.spared_w,
    )
    write_record(path, PROFILE, _ProfileFile, content)


def read_kernel_profile(path: Path) -> KernelProfile:
    """Read what ``write_kernel_profile`` wrote.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    content = read_record(path, PROFILE, _ProfileFile, remedy="measure the kernels again")
    kernels = [measured.kernel for measured in content.measured]
    if len(set(kernels)) != len(kernels):
        raise ProfileError(f"{path} names a kernel class twice")
    try:
        return KernelProfile(
            points={measured.kernel: measured.first for measured in content.measured},
            second={measured.kernel: measured.second for measured in content.measured if measured.second},
            left_out={left.kernel: left.reason for left in content.left_out},
            why_not_memory=content.why_not_memory,
            spared_w=content.spared_w,
            fingerprint=content.fingerprint,
        )
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
