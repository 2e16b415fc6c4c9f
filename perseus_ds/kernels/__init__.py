"""The kernel level: what an instruction is made of, and a pair of clocks for every kernel of it."""

from perseus_ds.kernels.json_file import (
    read_kernel_plan,
    read_kernel_profile,
    read_trace,
    write_kernel_plan,
    write_kernel_profile,
    write_trace,
)
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.summary import KernelPlan, kernel_plan
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence

__all__ = [
    "KernelClass",
    "KernelPlan",
    "KernelPoint",
    "KernelProfile",
    "KernelTrace",
    "LaunchSequence",
    "kernel_plan",
    "read_kernel_plan",
    "read_kernel_profile",
    "read_trace",
    "write_kernel_plan",
    "write_kernel_profile",
    "write_trace",
]
