"""What a GPU's clock and counter really do on this node: call, settle up and down, counter period."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Capabilities

_TRIES = 5
_LIMIT_S = 0.5
_POLL_S = 0.001
_TICKS = 6
_COUNTER_LIMIT_S = 2.0
_BRIEF_TRIES = 3
_BRIEF_LIMIT_S = 0.2
_BRIEF_COUNTER_S = 0.35
_COARSEST = 0.25  # of a latency: a host that looks more rarely than this cannot tell it
_FINE_S = 0.003

Pause = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Switch:
    """One change of clock: how long the call took, and how long until the new clock was achieved.

    ``total_s`` counts from the call's beginning and is ``None`` when the clock was not reached in time.
    ``blur_s`` is how long nobody looked before the new clock was seen.
    """

    from_mhz: int
    to_mhz: int
    call_s: float
    total_s: float | None
    blur_s: float = 0.0

    @property
    def told(self) -> bool:
        """Whether the looks came closely enough to tell the latency."""
        return self.total_s is not None and self.blur_s <= max(_FINE_S, _COARSEST * self.total_s)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Medians over several switches; ``None`` where nothing could be measured."""

    call_s: float | None
    up_s: float | None
    down_s: float | None
    together_s: float | None
    counter_period_s: float | None
    unreached: int

    @property
    def switch_latency_s(self) -> float | None:
        """The latency to plan with: the slower direction."""
        known = [latency_s for latency_s in (self.up_s, self.down_s) if latency_s is not None]
        return max(known, default=None)


def calibrate(gpu: Gpu, *, others: Sequence[Gpu] = (), pause: Pause = time.sleep) -> Calibration:
    """Measure one GPU, and how the latency grows when ``others`` of the node switch with it.

    Sets clocks, between the maximum and the middle of the grid, and resets them; a GPU should be busy
    meanwhile, since an idle one may clock down, lock or not. A device that cannot lock has only its counter
    measured.

    Raises:
        DeviceError: the device refused.

    Cost: about a second of the device's time.
    """
    period_s = measure_counter_period_s(gpu, pause=pause)
    if not gpu.capabilities().can_lock:
        return Calibration(None, None, None, None, period_s, 0)
    clocks_mhz = gpu.capabilities().clocks_mhz
    high_mhz, low_mhz = clocks_mhz[0], clocks_mhz[len(clocks_mhz) // 2]
    try:
        pairs = [(low_mhz, high_mhz), (high_mhz, low_mhz)] * _TRIES
        first, *switches = [measure_switch(gpu, *pair, pause=pause) for pair in [pairs[-1], *pairs]]
        together_s = _together_s([gpu, *others], low_mhz, high_mhz, pause) if others else None
    finally:
        for one in (gpu, *others):
            one.reset_clock()
    del first  # it began from an unknown clock
    return Calibration(
        call_s=median(switch.call_s for switch in switches),
        up_s=_typical_s([switch for switch in switches if switch.to_mhz == high_mhz]),
        down_s=_typical_s([switch for switch in switches if switch.to_mhz == low_mhz]),
        together_s=together_s,
        counter_period_s=period_s,
        unreached=sum(switch.total_s is None for switch in switches),
    )


def calibrate_briefly(gpu: Gpu, *, pause: Pause = time.sleep) -> Calibration:
    """Measure a few switches and ticks, at the start of a job; several ranks may do so at once.

    A device on which no clock can be set has only its counter measured. A first clock that is not reached
    ends the switches: the GPU is idle, capped or not ours to set.

    Raises:
        DeviceError: the device refused.

    Cost: about six tenths of a second of the device's time at most.
    """
    period_s = measure_counter_period_s(gpu, limit_s=_BRIEF_COUNTER_S, pause=pause)
    if not gpu.capabilities().can_lock:
        return Calibration(None, None, None, None, period_s, 0)
    clocks_mhz = gpu.capabilities().clocks_mhz
    high_mhz, low_mhz = clocks_mhz[0], clocks_mhz[len(clocks_mhz) // 2]
    try:
        switches = _brief_switches(gpu, low_mhz, high_mhz, pause)
    finally:
        gpu.reset_clock()
    told = [switch for switch in switches if switch.told]
    return Calibration(
        call_s=median(switch.call_s for switch in switches),
        up_s=_typical_s([switch for switch in told if switch.to_mhz == high_mhz]),
        down_s=_typical_s([switch for switch in told if switch.to_mhz == low_mhz]),
        together_s=None,
        counter_period_s=period_s,
        unreached=sum(switch.total_s is None for switch in switches),
    )


def _brief_switches(gpu: Gpu, low_mhz: int, high_mhz: int, pause: Pause) -> list[Switch]:
    """Down first, from wherever it was (it counts only if it fails), then up and down in turn."""
    first = _change(gpu, high_mhz, low_mhz, limit_s=_BRIEF_LIMIT_S, pause=pause)
    if first.total_s is None:
        return [first]
    ways = [(low_mhz, high_mhz), (high_mhz, low_mhz)] * _BRIEF_TRIES
    return [_change(gpu, *way, limit_s=_BRIEF_LIMIT_S, pause=pause) for way in ways]


def measure_switch(gpu: Gpu, from_mhz: int, to_mhz: int, *, pause: Pause = time.sleep) -> Switch:
    """Lock one clock, wait for it, then time the change to the other."""
    gpu.lock_clock(from_mhz)
    _wait_for(gpu, from_mhz, pause)
    return _change(gpu, from_mhz, to_mhz, limit_s=_LIMIT_S, pause=pause)


def _change(gpu: Gpu, from_mhz: int, to_mhz: int, *, limit_s: float, pause: Pause) -> Switch:
    began_s = gpu.now_s()
    gpu.lock_clock(to_mhz)
    gpu.sync()
    call_s = gpu.now_s() - began_s
    reached_s = _wait_for(gpu, to_mhz, pause, limit_s=limit_s)
    if reached_s is None:
        return Switch(from_mhz, to_mhz, call_s, None)
    looked_s, seen_s = reached_s
    return Switch(from_mhz, to_mhz, call_s, (looked_s + seen_s) / 2 - began_s, seen_s - looked_s)


def measure_counter_period_s(
    gpu: Gpu, *, limit_s: float = _COUNTER_LIMIT_S, pause: Pause = time.sleep
) -> float | None:
    """Time between changes of the energy counter, or ``None`` without one that ticks."""
    if gpu.capabilities().counter_period_s is None:
        return None
    changes_s: list[float] = []
    began_s, seen_j = gpu.now_s(), gpu.energy_j()
    while len(changes_s) < _TICKS and gpu.now_s() < began_s + limit_s:
        pause(gpu.wall_s(_POLL_S))
        now_j = gpu.energy_j()
        if now_j != seen_j:
            changes_s.append(gpu.now_s())
            seen_j = now_j
    gaps_s = [later - earlier for earlier, later in pairwise(changes_s)]
    return median(gaps_s) if gaps_s else None


def measured(able: Capabilities, calibration: Calibration) -> Capabilities:
    """Put what was measured in the place of what was declared."""
    return replace(
        able,
        counter_period_s=calibration.counter_period_s or able.counter_period_s,
        switch_latency_s=calibration.switch_latency_s or able.switch_latency_s,
        switch_call_s=able.switch_call_s if calibration.call_s is None else calibration.call_s,
    )


def _together_s(gpus: Sequence[Gpu], low_mhz: int, high_mhz: int, pause: Pause) -> float | None:
    """Median time until the last of all GPUs has the clock that was asked of all at once."""
    totals_s: list[float] = []
    for to_mhz in (low_mhz, high_mhz) * _TRIES:
        began_s = gpus[0].now_s()
        for gpu in gpus:
            gpu.lock_clock(to_mhz)
        reached_s = [_wait_for(gpu, to_mhz, pause) for gpu in gpus]
        known_s = [seen_s for _, seen_s in filter(None, reached_s)]
        if len(known_s) == len(gpus):
            totals_s.append(max(known_s) - began_s)
    return median(totals_s[1:]) if totals_s[1:] else None


def _wait_for(
    gpu: Gpu, clock_mhz: int, pause: Pause, *, limit_s: float = _LIMIT_S
) -> tuple[float, float] | None:
    """Between which two looks the clock was reached, or ``None`` if it was not in time."""
    looked_s = gpu.now_s()
    until_s = looked_s + limit_s
    while True:
        seen_mhz, now_s = gpu.achieved().clock_mhz, gpu.now_s()
        if seen_mhz == clock_mhz:
            return looked_s, now_s
        if now_s >= until_s:
            return None
        looked_s = now_s
        pause(gpu.wall_s(_POLL_S))


def _typical_s(switches: Sequence[Switch]) -> float | None:
    known_s = [switch.total_s for switch in switches if switch.total_s is not None]
    return median(known_s) if known_s else None
