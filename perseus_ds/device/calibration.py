"""What a GPU's clock and counter really do on this node: call, settle up and down, counter period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median

from perseus_ds.device.conflict import is_at
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Capabilities, EventReason
from perseus_ds.errors import DeviceError

_TRIES = 3
_LIMIT_S = 0.2
_POLL_S = 0.001
_TICKS = 6
_COUNTER_LIMIT_S = 0.35
_COARSEST = 0.25  # of a latency: a host that looks more rarely than this cannot tell it
_FINE_S = 0.003
_BEAT_S = 0.050

Pause = Callable[[float], None]
"""Lets so many seconds of the device's time pass."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One change of clock: how long the call took, and how long until the new clock was achieved.

    ``total_s`` counts from the call's beginning and is ``None`` when the clock was not reached in time.
    ``blur_s`` is how long nobody looked before the new clock was seen. ``idle`` says that the device did
    nothing and did not reach its clock: an idle one clocks down by itself, lock or not.
    """

    from_mhz: int
    to_mhz: int
    call_s: float
    total_s: float | None
    blur_s: float = 0.0
    idle: bool = False

    @property
    def told(self) -> bool:
        """Whether the looks came closely enough to tell the latency."""
        return self.total_s is not None and self.blur_s <= max(_FINE_S, _COARSEST * self.total_s)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Medians over several switches; ``None`` where nothing could be measured.

    ``unreached`` counts the clocks that were not reached, ``idle`` those where the device did nothing.
    ``memory_why_not`` is why the memory clock cannot be locked (``None``: it can), told without trying.
    """

    call_s: float | None
    up_s: float | None
    down_s: float | None
    together_s: float | None
    counter_period_s: float | None
    unreached: int
    idle: int = 0
    memory_why_not: str | None = None

    @property
    def switch_latency_s(self) -> float | None:
        """The latency to plan with: the slower direction."""
        known = [latency_s for latency_s in (self.up_s, self.down_s) if latency_s is not None]
        return max(known, default=None)


def calibrate(gpu: Gpu, *, in_step: bool = False, pause: Pause | None = None) -> Calibration:
    """Measure a few switches, between the maximum and the middle of the grid, and ticks of the counter.

    Several GPUs may be measured at once, each from a thread or process of its own; ``in_step`` then has their
    changes begin together, at whole beats of the host's clock, which all of them read alike. A device on
    which no clock can be set has only its counter measured. A first clock that is not reached ends the
    switches: the GPU is idle, capped or not ours to set.

    Raises:
        DeviceError: the device refused.

    Cost: about six tenths of a second of the device's time at most.
    """
    pause = pause or gpu.sleep
    period_s = measure_counter_period_s(gpu, pause=pause)
    if not gpu.capabilities().can_lock:
        return _found(gpu, [], period_s)
    try:
        switches = _switches(gpu, *_two_clocks_mhz(gpu), pause, in_step=in_step)
    finally:
        gpu.reset_clock()
    return _found(gpu, switches, period_s)


def _two_clocks_mhz(gpu: Gpu) -> tuple[int, int]:
    """The two that are switched between: the highest, and one in the middle of the grid."""
    clocks_mhz = gpu.capabilities().clocks_mhz
    return clocks_mhz[0], clocks_mhz[len(clocks_mhz) // 2]


def _found(
    gpu: Gpu, switches: Sequence[Switch], period_s: float | None, *, together_s: float | None = None
) -> Calibration:
    """Sum up; only switches that were looked at closely enough count for a latency."""
    told = [switch for switch in switches if switch.told]
    return Calibration(
        call_s=median(switch.call_s for switch in switches) if switches else None,
        up_s=_typical_s([switch for switch in told if switch.to_mhz > switch.from_mhz], seen=True),
        down_s=_typical_s([switch for switch in told if switch.to_mhz < switch.from_mhz]),
        together_s=together_s,
        counter_period_s=period_s,
        unreached=sum(switch.total_s is None for switch in switches),
        idle=sum(switch.idle for switch in switches),
        memory_why_not=gpu.capabilities().memory_why_not,
    )


def _switches(gpu: Gpu, high_mhz: int, low_mhz: int, pause: Pause, *, in_step: bool) -> list[Switch]:
    """Down first, from wherever it was (it counts only if it fails), then up and down in turn."""
    first = _change(gpu, high_mhz, low_mhz, pause)
    if first.total_s is None:
        return [first]
    switches = []
    for way in [(low_mhz, high_mhz), (high_mhz, low_mhz)] * _TRIES:
        if in_step:
            pause(_BEAT_S - gpu.now_s() % _BEAT_S)
        switches.append(_change(gpu, *way, pause))
    return switches


def _change(gpu: Gpu, from_mhz: int, to_mhz: int, pause: Pause) -> Switch:
    began_s = gpu.now_s()
    gpu.lock_clock(to_mhz)
    gpu.sync()
    call_s = gpu.now_s() - began_s
    reached_s = _wait_for(gpu, to_mhz, pause)
    if reached_s is None:
        idle = bool(gpu.achieved().event_reasons & EventReason.GPU_IDLE)
        return Switch(from_mhz, to_mhz, call_s, None, idle=idle)
    looked_s, seen_s = reached_s
    return Switch(from_mhz, to_mhz, call_s, (looked_s + seen_s) / 2 - began_s, seen_s - looked_s)


def measure_counter_period_s(gpu: Gpu, *, pause: Pause | None = None) -> float | None:
    """Time between changes of the energy counter, or ``None`` without one that ticks."""
    pause = pause or gpu.sleep
    if gpu.capabilities().counter_period_s is None:
        return None
    changes_s: list[float] = []
    began_s, seen_j = gpu.now_s(), gpu.energy_j()
    while len(changes_s) < _TICKS and gpu.now_s() < began_s + _COUNTER_LIMIT_S:
        pause(_POLL_S)
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


def calibrate_together(gpus: Sequence[Gpu]) -> tuple[Calibration | DeviceError, ...]:
    """Measure every GPU of a node alone, then all at once: ``together_s`` is the longest wait of any then.

    Cost: about six tenths of a second for each GPU, and once more.
    """
    alone = [_attempt(gpu) for gpu in gpus]
    if len(gpus) <= 1:
        return tuple(alone)
    with ThreadPoolExecutor(len(gpus)) as threads:
        at_once = list(threads.map(partial(_attempt, in_step=True), gpus))
    waits_s = [one.switch_latency_s for one in at_once if isinstance(one, Calibration)]
    together_s = max(filter(None, waits_s), default=None)
    return tuple(
        replace(one, together_s=together_s) if isinstance(one, Calibration) else one for one in alone
    )


def _attempt(gpu: Gpu, *, in_step: bool = False) -> Calibration | DeviceError:
    try:
        return calibrate(gpu, in_step=in_step)
    except DeviceError as error:
        return error


def _wait_for(gpu: Gpu, clock_mhz: int, pause: Pause) -> tuple[float, float] | None:
    """Between which two looks the clock was reached, or ``None`` if it was not in time."""
    looked_s = gpu.now_s()
    until_s = looked_s + _LIMIT_S
    while True:
        seen, now_s = gpu.achieved(), gpu.now_s()
        if is_at(clock_mhz, seen):
            return looked_s, now_s
        if now_s >= until_s:
            return None
        looked_s = now_s
        pause(_POLL_S)


def _typical_s(switches: Sequence[Switch], *, seen: bool = False) -> float | None:
    """The median; with ``seen`` of when the new clock was there at the latest.

    A higher clock that comes half a look late costs time, one that comes half a look early next to nothing.
    """
    known_s = [
        switch.total_s + (switch.blur_s / 2 if seen else 0.0)
        for switch in switches
        if switch.total_s is not None
    ]
    return median(known_s) if known_s else None
