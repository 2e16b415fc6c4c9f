"""The kernel level: what an instruction is made of, and a pair of clocks for every kernel of it."""

from perseus_ds.kernels.csv_file import read_kernel_csv, write_kernel_csv
from perseus_ds.kernels.json_file import (
    read_kernel_plan,
    read_kernel_profile,
    read_timelines,
    read_trace,
    write_kernel_plan,
    write_kernel_profile,
    write_timelines,
    write_trace,
)
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.record import DEFAULT_PAIR, ClockPair, KernelClass
from perseus_ds.kernels.segment import InstructionTimelines
from perseus_ds.kernels.summary import KernelPlan, kernel_plan
from perseus_ds.kernels.trace import KernelTrace, LaunchSequence

__all__ = [
    "DEFAULT_PAIR",
    "ClockPair",
    "InstructionTimelines",
    "KernelClass",
    "KernelPlan",
    "KernelPoint",
    "KernelProfile",
    "KernelTrace",
    "LaunchSequence",
    "kernel_plan",
    "read_kernel_csv",
    "read_kernel_plan",
    "read_kernel_profile",
    "read_timelines",
    "read_trace",
    "write_kernel_csv",
    "write_kernel_plan",
    "write_kernel_profile",
    "write_timelines",
    "write_trace",
]
