"""What a GPU model is made of: plain numbers, each with the source it came from."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

Table = tuple[tuple[float, float], ...]

ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a model must know of single kernels.

    ``product_flops`` (dense, half precision, of which ``product_efficiency`` is reached) and
    ``lane_instructions`` are per second at the maximum core clock. ``bandwidth`` is in bytes per second at
    the default memory clock. ``memory_w`` is the power of the memory by its clock, ``traffic_w`` what moving
    data at full speed adds. Cores that wait for memory have ``stalled_activity`` of the densest kernels'
    dynamic power, those that run other instructions ``lane_intensity``.
    """

    processors: int
    product_flops: float
    product_efficiency: float
    lane_instructions: float
    bandwidth: float
    write_efficiency: float
    memory_w: Table
    traffic_w: float
    stalled_activity: float
    lane_intensity: float


@dataclass(frozen=True, slots=True, eq=False)
class GpuModel:
    """One kind of GPU; compared and hashed by identity, so that it can key a cache.

    ``voltage_squared`` is V^2 over its flat low-clock value, ``blocking_w`` the power of a GPU that
    waits inside a kernel (NCCL), both against MHz. ``dynamic_w`` is what work of intensity 1 adds at the
    maximum clock. The counter sees ``counter_window_s`` out of every ``counter_period_s``.
    ``sources`` names where each field came from; one that begins with ``assumed`` is ours.
    """

    key: str
    name: str
    clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    voltage_squared: Table
    blocking_w: Table
    dynamic_w: float
    power_cap_w: float
    leakage_w_per_k: float
    reference_c: float
    ambient_c: float
    thermal_k_per_w: float
    thermal_s: float
    call_s: float
    settle_s: float
    counter_period_s: float
    counter_window_s: float
    roofline: Roofline
    sources: Mapping[str, str]

    @property
    def max_clock_mhz(self) -> int:
        """The highest clock of the grid, which is also the default."""
        return self.clocks_mhz[0]

    def is_assumed(self, field: str) -> bool:
        """Whether a number is our own guess."""
        return self.sources[field].startswith(ASSUMED)


def interpolate(table: Table, x: float) -> float:
    """Read an ascending table between its points, flat beyond its ends.

    Cost: O(log n).
    """
    at = bisect_left(table, (x,))
    if at == 0:
        return table[0][1]
    if at == len(table):
        return table[-1][1]
    (x0, y0), (x1, y1) = table[at - 1], table[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def grid_mhz(low: int, high: int, step: int = 15) -> tuple[int, ...]:
    """List a grid of clocks, descending."""
    return tuple(range(high, low - 1, -step))
