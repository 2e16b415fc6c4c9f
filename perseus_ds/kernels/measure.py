"""Measure one kernel class at a pair of clocks: launched again and again until time and power stand still."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from perseus_ds.device.gpu import ClockPair, Gpu
from perseus_ds.errors import DeviceUnsupportedError, ProfileError
from perseus_ds.kernels.counter_window import Replay, SteppingCounter
from perseus_ds.kernels.profile import KernelPoint

_MOST_LAUNCHES = 2**24


@dataclass(frozen=True, slots=True)
class WindowPatience:
    """How long to measure, with launches in blocks of ``block_s`` or more.

    A pair is warmed up in stretches of ``warmup_s`` until the power of two that follow each other agrees to
    ``steady_pct``, or ``most_warmups`` have passed. Then ``windows`` of ``window_s`` each are measured.
    """

    warmup_s: float = 1.0
    steady_pct: float = 0.5
    most_warmups: int = 25
    window_s: float = 2.0
    windows: int = 3
    block_s: float = 0.01

    def __post_init__(self) -> None:
        if min(self.warmup_s, self.window_s, self.steady_pct, self.block_s) <= 0:
            raise ProfileError("warm-up, window, steadiness and block must be above 0")
        if self.windows < 2 or self.most_warmups < 1:  # noqa: PLR2004  # a spread needs two
            raise ProfileError(
                f"{self.windows} windows, {self.most_warmups} warm-ups", hint="2 and 1 or more"
            )


def measure(
    gpu: Gpu, replay: Replay, pairs: Sequence[ClockPair], patience: WindowPatience
) -> tuple[KernelPoint, ...]:
    """Measure at every pair; both clocks are given back at the end, whatever happens.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    declared_s = gpu.capabilities().counter_period_s
    if declared_s is None:
        raise DeviceUnsupportedError(
            f"{gpu.identify().name} has no energy counter", hint="kernels are measured by it"
        )
    try:
        counter = SteppingCounter.of(gpu, declared_s)
        return tuple(_measured(counter, replay, pair, patience) for pair in pairs)
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


def _measured(
    counter: SteppingCounter, replay: Replay, pair: ClockPair, patience: WindowPatience
) -> KernelPoint:
    gpu = counter.gpu
    set_pair(gpu, pair)
    launches = _block(gpu, replay, patience.block_s)
    before = counter.window(replay, launches, patience.warmup_s + gpu.capabilities().switch_latency_s)
    for _ in range(patience.most_warmups - 1):
        now = counter.window(replay, launches, patience.warmup_s)
        if abs(now.power_w / before.power_w - 1.0) <= patience.steady_pct / 100.0:
            break
        before = now
    windows = [counter.window(replay, launches, patience.window_s) for _ in range(patience.windows)]
    times_s = [window.time_s for window in windows]
    energies_j = [window.time_s * window.power_w for window in windows]
    read_c = [window.temperature_c for window in windows if window.temperature_c is not None]
    return KernelPoint(
        pair,
        fmean(times_s),
        fmean(energies_j),
        _error(times_s),
        _error(energies_j),
        len(windows),
        fmean(read_c) if len(read_c) == len(windows) else None,
    )


def _block(gpu: Gpu, replay: Replay, block_s: float) -> int:
    """How many launches last so long that their start and end do not count, and short against a window."""
    launches = 1
    while launches < _MOST_LAUNCHES:
        start_s = gpu.now_s()
        replay.run(launches)
        if gpu.now_s() - start_s >= block_s:
            return launches
        launches *= 2
    return launches


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))
