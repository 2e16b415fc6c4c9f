"""Kernels whose true cost is known at every pair, and measurements of them with noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perseus_ds.device.gpu import DEFAULT_PAIR, ClockPair
from perseus_ds.kernels import KernelClass, KernelPoint, KernelProfile, KernelTrace, LaunchSequence
from perseus_ds.schedule import Kind

PAIRS = (
    DEFAULT_PAIR,
    *(ClockPair(memory, clock) for memory in (None, 9251, 5001, 810) for clock in range(1980, 600, -30)),
    ClockPair(5001, None),
    ClockPair(810, None),
)
KERNELS = tuple(
    KernelClass(name, ((size, size),))
    for name in ("gemm", "softmax", "gelu", "permute")
    for size in range(8, 14)
)


def true_cost(kernel: KernelClass, pair: ClockPair) -> tuple[float, float]:
    """Time and energy by a small roofline: products follow the core clock, the others the memory clock."""
    clock = (pair.clock_mhz or 1995) / 1995
    memory = (pair.memory_mhz or 9501) / 9501
    bound = {"gemm": 0.05, "softmax": 0.8, "gelu": 0.95, "permute": 0.6}[kernel.name]
    time = 1e-3 * kernel.shapes[0][0] * max((1 - bound) / clock + 0.3 * bound, bound / memory)
    power = 80 + 60 * memory + 160 * clock**2.5 * (1 - 0.4 * bound)
    return time, power * time


def trace_of(kernels: Sequence[KernelClass] = KERNELS) -> KernelTrace:
    half = len(kernels) // 2
    return KernelTrace(
        tuple(kernels),
        (
            LaunchSequence(0, Kind.FORWARD, tuple(range(half)) * 3, times=4),
            LaunchSequence(0, Kind.BACKWARD, tuple(range(half, len(kernels))) * 3, times=4),
        ),
    )


def measured(
    random: np.random.Generator, noise: float, wanted: Mapping[KernelClass, Sequence[ClockPair]] | None = None
) -> dict[KernelClass, tuple[KernelPoint, ...]]:
    """One measurement of every kernel at every pair, or at those wanted."""

    def point(kernel: KernelClass, pair: ClockPair) -> KernelPoint:
        time, energy = true_cost(kernel, pair)
        a, b = 1 + noise * random.standard_normal(2)
        return KernelPoint(pair, time * a, energy * b, time * noise, energy * noise)

    return {
        kernel: tuple(point(kernel, pair) for pair in (PAIRS if wanted is None else wanted[kernel]))
        for kernel in KERNELS
    }


def exact() -> KernelProfile:
    return KernelProfile(measured(np.random.default_rng(0), 0.0))
