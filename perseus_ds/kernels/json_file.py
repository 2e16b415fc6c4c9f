"""Trace and kernel profile as files of our own: JSON with units in the key names, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pydantic

from perseus_ds.errors import PerseusError, ProfileError
from perseus_ds.files import parse_json, read_bounded
from perseus_ds.kernels.csv_file import read_kernel_csv
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.record import KernelClass
from perseus_ds.kernels.segment import InstructionTimelines
from perseus_ds.kernels.summary import KernelPlan
from perseus_ds.kernels.trace import KernelTrace
from perseus_ds.run_directory import write_json

TRACE, PROFILE, PLAN, VERSION = "perseus-kernel-trace", "perseus-kernel-profile", "perseus-kernel-plan", 1
TIMELINES = "perseus-kernel-timelines"
MOST_BYTES = 64 * 2**20

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class _Measured:
    kernel: KernelClass
    first: tuple[KernelPoint, ...]
    second: tuple[KernelPoint, ...] = ()


@dataclass(frozen=True, slots=True)
class _TimelinesFile:
    instructions: tuple[InstructionTimelines, ...]


@dataclass(frozen=True, slots=True)
class _LeftOut:
    kernel: KernelClass
    reason: str


@dataclass(frozen=True, slots=True)
class _ProfileFile:
    """A profile as JSON can hold it: no mapping with a kernel class for its key."""

    measured: tuple[_Measured, ...]
    left_out: tuple[_LeftOut, ...]
    why_not_memory: str | None
    fingerprint: Mapping[str, str]
    spared_w: tuple[tuple[int, float], ...] = ()


def write_trace(trace: KernelTrace, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    _write(path, TRACE, KernelTrace, trace)


def read_trace(path: Path) -> KernelTrace:
    """Read a trace.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return _read(path, TRACE, KernelTrace, remedy="trace the job again")


def write_kernel_profile(profile: KernelProfile, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    content = _ProfileFile(
        tuple(
            _Measured(kernel, first, profile.second.get(kernel, ()))
            for kernel, first in profile.points.items()
        ),
        tuple(_LeftOut(kernel, reason) for kernel, reason in profile.left_out.items()),
        profile.why_not_memory,
        profile.fingerprint,
        profile.spared_w,
    )
    _write(path, PROFILE, _ProfileFile, content)


def read_kernel_profile(path: Path) -> KernelProfile:
    """Read a kernel profile: ours, or a CSV when the name ends in ``.csv``.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    if path.suffix.lower() == ".csv":
        return read_kernel_csv(path)
    content = _read(path, PROFILE, _ProfileFile, remedy="measure the kernels again")
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
    _write(path, PLAN, KernelPlan, plan)


def read_kernel_plan(path: Path) -> KernelPlan:
    """Read what `perseus-ds kernels plan -o` wrote.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return _read(path, PLAN, KernelPlan, remedy="plan again")


def write_timelines(instructions: tuple[InstructionTimelines, ...], path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    _write(path, TIMELINES, _TimelinesFile, _TimelinesFile(instructions))


def read_timelines(path: Path) -> tuple[InstructionTimelines, ...]:
    """Read the timelines of instructions, ours or those of another kernel scheduler.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return _read(path, TIMELINES, _TimelinesFile, remedy="plan again").instructions


def _write(path: Path, name: str, kind: type[Record], record: Record) -> None:
    content = pydantic.TypeAdapter(kind).dump_python(record, mode="json")
    write_json(path, {"format": name, "version": VERSION} | content)


def _read(path: Path, name: str, kind: type[Record], *, remedy: str) -> Record:
    try:
        text = read_bounded(path, most_bytes=MOST_BYTES)
        content = parse_json(text)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise ProfileError(f"{path} {error.message}", hint=error.hint or remedy) from error
    if not isinstance(content, dict) or content.get("format") != name:
        raise ProfileError(f"{path} is not a {name}", hint=f'expected "format": "{name}"')
    if content.get("version") != VERSION:
        raise ProfileError(
            f"{path} is a {name} of version {content.get('version')}", hint=f"we read version {VERSION}"
        )
    try:
        return pydantic.TypeAdapter(kind).validate_json(text, strict=True)
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ProfileError(f"{path}: {key}: {first['msg']}", hint=remedy) from error
