"""What a GPU's clock and counter really do on this node: call, settle up and down, counter period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from perseus_ds.device.changing.switches import CounterTicks, Steps, Switch, switches
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Capabilities
from perseus_ds.errors import DeviceError

Pause = Callable[[float], None]
"""Lets so many seconds of the device's time pass."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Medians over several switches; ``None`` where nothing could be measured.

    ``unreached`` counts the clocks that were not reached, ``idle`` those where the device did nothing.
    ``memory_why_not`` is why the memory clock cannot be locked (``None``: it can), reported without trying.
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
    """Do all of `calibrating` at once, for whoever has nothing else to do meanwhile.

    Raises:
        DeviceError: the device refused.
    """
    pause = pause or gpu.sleep
    with closing(calibrating(gpu, in_step=in_step)) as steps:
        while True:
            try:
                pause(next(steps))
            except StopIteration as end:
                found: Calibration = end.value
                return found


def calibrating(gpu: Gpu, *, in_step: bool = False) -> Steps[Calibration]:
    """Measure a few switches and meanwhile ticks of the counter; who closes it finds the clock reset.

    Switched is between the maximum and the middle of the grid. On a GPU that power or heat holds back, it is
    between clocks below what it reaches. Several GPUs may be measured at once, each from a thread or process
    of its own. ``in_step`` then has their changes begin together, at whole beats of the host's clock, which
    all of them read alike. A device on which no clock can be set has only its counter measured. An idle GPU,
    or one that is not ours to set, reaches nothing: that ends the switches.

    Raises:
        DeviceError: the device refused.

    Cost: about six tenths of a second of the device's time at most.
    """
    ticks = CounterTicks(gpu)
    done: list[Switch] = []
    if gpu.capabilities().can_lock:
        try:
            yield from switches(gpu, ticks, done, in_step=in_step)
        finally:
            gpu.reset_clock()
    yield from ticks.rest()
    return _found(gpu, done, ticks.period_s)


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


def measured(able: Capabilities, calibration: Calibration) -> Capabilities:
    """Put what was measured instead of what was declared."""
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
