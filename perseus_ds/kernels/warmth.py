"""Kernels' energies brought to one temperature: that of a GPU that runs the trace at default clocks.

Each class and each pair of clocks makes the GPU as warm as itself, and leakage follows the temperature.
`measure_trace` calls this between its two measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from perseus_ds.device import Gpu
from perseus_ds.device.clock_pair import DEFAULT_PAIR
from perseus_ds.kernels.counter_window import Replay
from perseus_ds.kernels.measure import WindowPatience, measure
from perseus_ds.kernels.profile import KernelPoint
from perseus_ds.kernels.trace import KernelClass, KernelTrace
from perseus_ds.profile.estimating.thermal import Kappa, kappa_along

_REST_S = 60.0
_POINTS, _LAST = 60, 10
_PATIENCE = WindowPatience(warmup_s=0.5, most_warmups=1, window_s=1.0, windows=2, block_s=0.1)


@dataclass(frozen=True, slots=True)
class WarmGpu:
    """Where a GPU ends at default clocks (degrees C), and how many watts more it takes per degree."""

    settled_c: float
    kappa: Kappa

    def brought(self, point: KernelPoint) -> KernelPoint:
        """The same point at that temperature."""
        if point.temperature_c is None:
            return point
        warmer_ks = (self.settled_c - point.temperature_c) * point.time_s
        return replace(
            point,
            energy_j=point.energy_j + self.kappa.w_per_k * warmer_ks,
            energy_se_j=math.hypot(point.energy_se_j, self.kappa.error * warmer_ks),
            temperature_c=self.settled_c,
        )


def warmth_of(gpu: Gpu, replay: Replay) -> WarmGpu | None:
    """Let a GPU rest, and measure again and again while it becomes warm; None where nobody reads that.

    Cost: four minutes of the device.

    Raises:
        DeviceError: there is no energy counter, or it stands still.
    """
    gpu.sleep(_REST_S)
    points = measure(gpu, replay, [DEFAULT_PAIR] * _POINTS, _PATIENCE)
    read_c = [point.temperature_c for point in points if point.temperature_c is not None]
    if len(read_c) < len(points):
        return None
    kappa = kappa_along([_power_w(point) for point in points], read_c)
    return None if kappa is None else WarmGpu(fmean(read_c[-_LAST:]), kappa)


def usual_class(points: Mapping[KernelClass, Sequence[KernelPoint]], trace: KernelTrace) -> KernelClass:
    """The class that takes about what the whole trace takes at default clocks."""
    at_default = {
        kernel: point for kernel, found in points.items() for point in found if point.pair == DEFAULT_PAIR
    }
    spent_j = spent_s = 0.0
    for sequence in trace.sequences:
        for place, count in sequence.counts.items():
            point = at_default.get(trace.classes[place])
            if point is not None:
                spent_j += sequence.times * count * point.energy_j
                spent_s += sequence.times * count * point.time_s
    return min(at_default, key=lambda kernel: abs(_power_w(at_default[kernel]) - spent_j / spent_s))


def _power_w(point: KernelPoint) -> float:
    return point.energy_j / point.time_s
