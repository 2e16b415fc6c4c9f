"""Trace and kernel profile as files of our own: JSON with units in the key names, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.errors import ProfileError
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.summary import KernelPlan
from perseus_ds.kernels.trace import KernelClass, KernelTrace
from perseus_ds.run_directory.paths import read_record, write_record

TRACE, PROFILE, PLAN = "perseus-kernel-trace", "perseus-kernel-profile", "perseus-kernel-plan"


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


def write_trace(trace: KernelTrace, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_record(path, TRACE, KernelTrace, trace)


def read_trace(path: Path) -> KernelTrace:
    """Read a trace.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return read_record(path, TRACE, KernelTrace, remedy="trace the job again")


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


def write_kernel_plan(plan: KernelPlan, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    write_record(path, PLAN, KernelPlan, plan)


def read_kernel_plan(path: Path) -> KernelPlan:
    """Read what `perseus-ds kernels plan -o` wrote.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return read_record(path, PLAN, KernelPlan, remedy="plan again")
