"""Measure one kernel class at a pair of clocks: launched again and again until time and power stand still."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Protocol

from perseus_ds.device import Gpu
from perseus_ds.device.clock_pair import ClockPair
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, ProfileError
from perseus_ds.kernels.profile import KernelPoint

_BLOCK_S = 0.01
_MOST_LAUNCHES = 2**24


class Replay(Protocol):
    """One kernel class that can be launched at will."""

    def run(self, launches: int) -> None:
        """Launch it so often, back to back, and return when the device has done them."""


@dataclass(frozen=True, slots=True)
class WindowPatience:
    """How long to measure.

    A pair is warmed up in stretches of ``warmup_s`` until the power of two that follow each other agrees to
    ``steady_pct``, or ``most_warmups`` have passed. Then ``windows`` of ``window_s`` each are measured.
    """

    warmup_s: float = 1.0
    steady_pct: float = 0.5
    most_warmups: int = 25
    window_s: float = 2.0
    windows: int = 3

    def __post_init__(self) -> None:
        if not (self.warmup_s > 0 and self.window_s > 0 and self.steady_pct > 0):
            raise ProfileError("warm-up, window and steadiness must be above 0")
        if self.windows < 2 or self.most_warmups < 1:  # noqa: PLR2004  # a spread needs two
            raise ProfileError(
                f"{self.windows} windows, {self.most_warmups} warm-ups", hint="2 and 1 or more"
            )


@dataclass(frozen=True, slots=True)
class _ClockWindow:
    time_s: float
    power_w: float


def measure(
    gpu: Gpu, replay: Replay, pairs: Sequence[ClockPair], patience: WindowPatience
) -> tuple[KernelPoint, ...]:
    """Measure at every pair; both clocks are given back at the end, whatever happens.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    if gpu.capabilities().counter_period_s is None:
        raise DeviceUnsupportedError(
            f"{gpu.identify().name} has no energy counter", hint="kernels are measured by it"
        )
    try:
        return tuple(_measured(gpu, replay, pair, patience) for pair in pairs)
    finally:
        set_pair(gpu, ClockPair())


def set_pair(gpu: Gpu, pair: ClockPair) -> None:
    """Ask for both clocks, or give them back."""
    if pair.memory_mhz is None:
        gpu.reset_memory_clock()
    else:
        gpu.lock_memory_clock(pair.memory_mhz)
    if pair.clock_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(pair.clock_mhz)
    gpu.sync()


def _measured(gpu: Gpu, replay: Replay, pair: ClockPair, patience: WindowPatience) -> KernelPoint:
    set_pair(gpu, pair)
    launches = _block(gpu, replay)
    before = _window(gpu, replay, launches, patience.warmup_s + gpu.capabilities().switch_latency_s)
    for _ in range(patience.most_warmups - 1):
        now = _window(gpu, replay, launches, patience.warmup_s)
        if abs(now.power_w / before.power_w - 1.0) <= patience.steady_pct / 100.0:
            break
        before = now
    windows = [_window(gpu, replay, launches, patience.window_s) for _ in range(patience.windows)]
    times_s = [window.time_s for window in windows]
    energies_j = [window.time_s * window.power_w for window in windows]
    return KernelPoint(
        pair, fmean(times_s), fmean(energies_j), _error(times_s), _error(energies_j), len(windows)
    )


def _block(gpu: Gpu, replay: Replay) -> int:
    """How many launches last long enough to pay for a look at the counter, and short against its ticks."""
    launches = 1
    while launches < _MOST_LAUNCHES:
        start_s = gpu.now_s()
        replay.run(launches)
        if gpu.now_s() - start_s >= _BLOCK_S:
            return launches
        launches *= 2
    return launches


def _window(gpu: Gpu, replay: Replay, launches: int, window_s: float) -> _ClockWindow:
    """Run for so long; time by the launches, power between the first and the last tick of the counter."""
    start_s, reading_j = gpu.now_s(), gpu.energy_j()
    first: tuple[float, float] | None = None
    last = (start_s, reading_j)
    blocks = 0
    now_s = start_s
    while now_s - start_s < window_s or first is None or last[0] == first[0]:
        replay.run(launches)
        blocks += 1
        now_s, now_j = gpu.now_s(), gpu.energy_j()
        if now_j != last[1]:
            first, last = first or (now_s, now_j), (now_s, now_j)
        elif now_s - last[0] > max(10.0 * window_s, 10.0):
            raise DeviceError(f"{gpu.identify().name}: the energy counter stands still under load")
    power_w = (last[1] - first[1]) / (last[0] - first[0])
    return _ClockWindow((now_s - start_s) / (blocks * launches), power_w)


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))
