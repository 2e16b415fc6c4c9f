"""Changes of a clock: their calibration on a real GPU, and the model of them that plans and clocks use."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TypeVar

from perseus_ds.device.clock_agenda import DatedClock
from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, Gpu, is_at, is_held
from perseus_ds.errors import DeviceError, ProfileError

# A few changes of clock, timed in steps: between two looks somebody else lets the device's time pass.

T = TypeVar("T")

_TRIES = 3
_KEPT = 4096
_LIMIT_S = 0.2
_POLL_S = 0.001
_TICKS = 6
_COUNTER_LIMIT_S = 0.35
_COARSEST = 0.25  # of a latency: a host that looks more rarely than this cannot tell it
_FINE_S = 0.003
_BEAT_S = 0.050
_STANDS_S = 0.005
_IDLE_BELOW = 1 / 3  # of the highest clock: no load is held down so far, an idle GPU is
_WAVER_MHZ = 30  # what lies this far below a clock that power or heat allowed just now is allowed too

Steps = Generator[float, None, T]
"""Yields how many seconds of the device's time are to pass before it goes on."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of clock: how long the call took, and how long until the new clock was achieved.

    ``total_s`` counts from the call's beginning and is ``None`` when the clock was not reached in time.
    ``blur_s`` is how long nobody looked before the new clock was seen. ``idle`` states that the device did
    nothing and did not reach its clock: an idle one clocks down by itself, lock or not. ``seen_mhz`` is what
    was seen in its place.
    """

    from_mhz: int
    to_mhz: int
    call_s: float
    total_s: float | None
    blur_s: float = 0.0
    idle: bool = False
    seen_mhz: int = 0

    @property
    def latency_s(self) -> float | None:
        """The latency, where looks came closely enough; of a higher clock until it was there at the latest.

        A higher clock that comes half a look late costs time, one that comes half a look early next to
        nothing.
        """
        if self.total_s is None or self.blur_s > max(_FINE_S, _COARSEST * self.total_s):
            return None
        return self.total_s + (0.5 * self.blur_s if self.to_mhz > self.from_mhz else 0.0)


class _CalibrationRun:
    """The changes of one GPU's clock, and the ticks of its energy counter that are noted meanwhile."""

    def __init__(self, gpu: Gpu, *, in_step: bool) -> None:
        self._gpu, self._in_step = gpu, in_step
        self._switches: list[Switch] = []
        self._ticks_s: list[float] = []
        self._has_counter = gpu.capabilities().counter_period_s is not None
        self._seen_j = gpu.energy_j() if self._has_counter else 0.0

    def steps(self) -> Steps[Calibration]:
        gpu, able = self._gpu, self._gpu.capabilities()
        until_s = gpu.now_s() + _COUNTER_LIMIT_S
        if able.can_lock:
            try:
                yield from self._to_and_fro(able.clocks_mhz)
                missed = self._switches[-1]
                idles = missed.idle or missed.seen_mhz < _IDLE_BELOW * able.clocks_mhz[0]
                if missed.total_s is None and not idles and missed.seen_mhz < missed.to_mhz:
                    lower_mhz = [mhz for mhz in able.clocks_mhz if mhz <= missed.seen_mhz - _WAVER_MHZ]
                    if len(lower_mhz) > 1:
                        yield from self._to_and_fro(lower_mhz)
            finally:
                gpu.reset_clock()
        while self._has_counter and len(self._ticks_s) < _TICKS and gpu.now_s() < until_s:
            yield _POLL_S
            self._look_at_counter()
        switches = self._switches
        return Calibration(
            call_s=_median(one.call_s for one in switches),
            up_s=_median(one.latency_s for one in switches if one.to_mhz > one.from_mhz),
            down_s=_median(one.latency_s for one in switches if one.to_mhz < one.from_mhz),
            together_s=None,
            counter_period_s=_median(later - earlier for earlier, later in pairwise(self._ticks_s)),
            unreached=sum(one.total_s is None for one in switches),
            idle=sum(one.idle for one in switches),
        )

    def _look_at_counter(self) -> None:
        if (
            self._has_counter
            and len(self._ticks_s) < _TICKS
            and (now_j := self._gpu.energy_j()) != self._seen_j
        ):
            self._ticks_s.append(self._gpu.now_s())
            self._seen_j = now_j

    def _to_and_fro(self, clocks_mhz: Sequence[int]) -> Steps[None]:
        """Down first, from wherever it was (it counts only if it fails), then up and down in turn."""
        gpu, high_mhz, low_mhz = self._gpu, clocks_mhz[0], clocks_mhz[len(clocks_mhz) // 2]
        first = yield from self._change(high_mhz, low_mhz)
        if first.total_s is None:
            self._switches.append(first)
            return
        for way in [(low_mhz, high_mhz), (high_mhz, low_mhz)] * _TRIES:
            until_s = gpu.now_s() + (_BEAT_S - gpu.now_s() % _BEAT_S if self._in_step else 0.0)
            while (left_s := until_s - gpu.now_s()) > 0:
                yield min(left_s, _POLL_S)
                self._look_at_counter()
            self._switches.append((yield from self._change(*way)))
            if self._switches[-1].total_s is None:
                return

    def _change(self, from_mhz: int, to_mhz: int) -> Steps[Switch]:
        """Ask for a clock, and look until it is there or has had its time.

        Power or heat may stop a rise below the clock that was asked for. Where the limit follows the load,
        the clock itself is reached much later, when a light kernel runs. Such a change is over when the clock
        has left the old one and has risen no more for ``_STANDS_S``.
        """
        gpu = self._gpu
        began_s = gpu.now_s()
        gpu.lock_clock(to_mhz)
        gpu.sync()
        looked_s = gpu.now_s()
        call_s, until_s = looked_s - began_s, looked_s + _LIMIT_S
        highest_mhz, rise = from_mhz, None
        while True:
            seen, now_s = gpu.achieved(), gpu.now_s()
            at_s, blur_s = look = (looked_s + now_s) / 2, now_s - looked_s
            limited = to_mhz > from_mhz and seen.event_reasons.spoils
            if limited and seen.clock_mhz > highest_mhz + _WAVER_MHZ:
                highest_mhz, rise = seen.clock_mhz, look
            if not is_at(to_mhz, seen) and limited and rise is not None and at_s - rise[0] >= _STANDS_S:
                return Switch(from_mhz, to_mhz, call_s, rise[0] - began_s, rise[1])
            if is_at(to_mhz, seen):
                return Switch(from_mhz, to_mhz, call_s, at_s - began_s, blur_s)
            if now_s >= until_s:
                fell = seen.clock_mhz < to_mhz and gpu.load_pct() == 0
                idle = fell or bool(seen.event_reasons & EventReason.GPU_IDLE)
                return Switch(from_mhz, to_mhz, call_s, None, idle=idle, seen_mhz=seen.clock_mhz)
            looked_s = now_s
            self._look_at_counter()
            yield _POLL_S


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


# What a GPU's clock and counter really do on this node: call, settle up and down, counter period.


@dataclass(frozen=True, slots=True)
class Calibration:
    """Medians over several switches; ``None`` where nothing could be measured.

    ``unreached`` counts the clocks that were not reached, ``idle`` those where the device did nothing.
    """

    call_s: float | None
    up_s: float | None
    down_s: float | None
    together_s: float | None
    counter_period_s: float | None
    unreached: int
    idle: int = 0

    @property
    def switch_latency_s(self) -> float | None:
        """The latency to plan with: the slower direction."""
        known = [latency_s for latency_s in (self.up_s, self.down_s) if latency_s is not None]
        return max(known, default=None)


def calibrate(gpu: Gpu, *, in_step: bool = False) -> Calibration:
    """Do all of `calibration_steps` at once, for whoever has nothing else to do meanwhile."""
    with closing(calibration_steps(gpu, in_step=in_step)) as steps:
        while True:
            try:
                gpu.sleep(next(steps))
            except StopIteration as end:
                found: Calibration = end.value
                return found


def calibration_steps(gpu: Gpu, *, in_step: bool = False) -> Steps[Calibration]:
    """Measure a few switches and meanwhile ticks of the counter; who closes it finds the clock reset.

    Switched is between the maximum and the middle of the grid. On a GPU that power or heat holds back, it is
    between clocks below what it reaches. Several GPUs may be measured at once, each from a thread or process
    of its own. ``in_step`` then has their changes begin together, at whole beats of the host's clock, which
    all of them read alike. A device on which no clock can be set has only its counter measured. An idle GPU,
    or one that is not ours to set, reaches nothing: that ends the switches.

    Cost: about six tenths of a second of the device's time at most.
    """
    return _CalibrationRun(gpu, in_step=in_step).steps()


def calibrate_together(gpus: Sequence[Gpu]) -> tuple[Calibration | DeviceError, ...]:
    """Measure every GPU of a node alone, then all at once: ``together_s`` is the longest wait of any then."""

    def attempt(gpu: Gpu, *, in_step: bool = False) -> Calibration | DeviceError:
        try:
            return calibrate(gpu, in_step=in_step)
        except DeviceError as error:
            return error

    alone = [attempt(gpu) for gpu in gpus]
    if len(gpus) <= 1:
        return tuple(alone)
    with ThreadPoolExecutor(len(gpus)) as threads:
        at_once = list(threads.map(partial(attempt, in_step=True), gpus))
    waits_s = [one.switch_latency_s for one in at_once if isinstance(one, Calibration)]
    together_s = max(filter(None, waits_s), default=None)
    return tuple(
        replace(one, together_s=together_s) if isinstance(one, Calibration) else one for one in alone
    )


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of clock, in device seconds; the old clock runs on until the new one is in force.

    ``call_s`` is how long the driver's call takes for the caller. ``settle_up_s`` and ``settle_down_s`` are
    how long after it the higher or the lower clock is in force. ``queue_s`` is the part of a call in which
    the driver serves no other GPU of the node: calls that coincide take their turns. For ``stall_s`` from the
    moment that the new clock is in force the GPU does no work.

    Raises:
        DeviceError: a number that is negative or not finite, or a queue longer than the call.
    """

    call_s: float = 0.0
    settle_up_s: float = 0.0
    settle_down_s: float = 0.0
    queue_s: float = 0.0
    stall_s: float = 0.0

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if not (math.isfinite(value) and value >= 0.0):
                raise DeviceError(
                    f"clock change: {part.name} is {value!r}", hint="expected a finite number, 0 or more"
                )
        if self.queue_s > self.call_s:
            raise DeviceError(
                f"clock change: queue_s is {self.queue_s:g}, more than call_s, {self.call_s:g}",
                hint="a call holds the driver for no longer than it takes",
            )

    @classmethod
    def of(cls, able: Capabilities, calibration: Calibration | None = None, *, gpus: int = 1) -> ClockChange:
        """Read the model off a calibration, where it states nothing off what the device declares.

        ``gpus`` is how many were measured together: what the last of them waited longer than one alone
        is the queue.
        """
        found = calibration or Calibration(None, None, None, None, None, unreached=0)
        call_s = able.switch_call_s if found.call_s is None else found.call_s
        up_s, down_s = (able.switch_latency_s if one is None else one for one in (found.up_s, found.down_s))
        queue_s = 0.0
        if found.together_s is not None and gpus > 1:
            queue_s = min(max(0.0, found.together_s - max(up_s, down_s)) / (gpus - 1), call_s)
        return cls(call_s, max(0.0, up_s - call_s), max(0.0, down_s - call_s), queue_s)

    @property
    def longest_s(self) -> float:
        """The latency of the slower direction, without waiting for others."""
        return self.call_s + max(self.settle_up_s, self.settle_down_s)

    def latency_s(self, from_mhz: float, to_mhz: float) -> float:
        """From asking to being in force, without waiting for others."""
        return self.call_s + (self.settle_up_s if to_mhz > from_mhz else self.settle_down_s)


def queue_call(  # noqa: PLR0917 - compiled code knows no names
    asked_s: float,
    gpu_free_s: float,
    driver_free_s: float,
    in_force_s: float,
    call_s: float,
    latency_s: float,
    queue_s: float,
) -> tuple[float, float, float]:
    """Return when GPU and driver are free again, and when the clock that is asked for is in force.

    Each GPU makes one call after the other; while one call holds the driver, those of other GPUs of the node
    wait. ``in_force_s`` is when the GPU's change before comes into force, which is never overtaken. Floats
    alone, so that the emulator can compile it for thousands of GPUs.
    """
    begins_s = max(asked_s, gpu_free_s)
    if queue_s > 0.0:
        begins_s = max(begins_s, driver_free_s)
        driver_free_s = begins_s + queue_s
    return begins_s + call_s, driver_free_s, max(begins_s + latency_s, in_force_s)


# A memory clock and a core clock that go together.

AUTO = "auto"


@dataclass(frozen=True, slots=True, order=True)
class ClockPair:
    """A memory clock and a core clock; ``None`` leaves the choice to the device, as it is by default."""

    memory_mhz: int | None = None
    clock_mhz: int | None = None

    def __post_init__(self) -> None:
        for mhz in (self.memory_mhz, self.clock_mhz):
            if mhz is not None and mhz <= 0:
                raise ProfileError(f"clock pair {self}: a clock is not a positive number of MHz")

    def __str__(self) -> str:
        return "/".join(AUTO if mhz is None else str(mhz) for mhz in (self.memory_mhz, self.clock_mhz))

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key that counts ``auto`` as the highest clock."""
        memory, clock = self.memory_mhz, self.clock_mhz
        return (float("inf") if memory is None else memory, float("inf") if clock is None else clock)


DEFAULT_PAIR = ClockPair()
"""Both clocks as the device chooses them: what every saving is counted against."""


# The clocks that were asked for, and whether a GPU reached them.


class AskedClocks:
    """Core clocks by the time of their request, by the rule of the agenda, as far back as anybody reads."""

    def __init__(self) -> None:
        self._asked: deque[DatedClock] = deque(maxlen=_KEPT)

    def put(self, request: DatedClock) -> None:
        """Note a request, the newest of the stream."""
        while self._asked and self._asked[-1].due_s > request.due_s:
            self._asked.pop()
        self._asked.append(request)

    @property
    def latest_mhz(self) -> int | None:
        """The clock that was asked for last; None: none was, or the device's own choice."""
        return self._asked[-1].clock_mhz if self._asked else None

    def steady_mhz(self, since_s: float, until_s: float) -> int | None:
        """The one clock asked for during all of a stretch; None: several, or the device's own choice."""
        for request in reversed(list(self._asked)):
            if request.due_s <= since_s:
                return request.clock_mhz
            if request.due_s <= until_s:
                return None
        return None


def is_capped(looks: Sequence[tuple[float, Achieved]], asked: AskedClocks, *, settle_s: float) -> bool:
    """Return whether the median reading is below the requested clock, once that had time to settle.

    Reasons prove nothing here. SW_POWER_CAP is the normal state of a loaded GPU at clocks that it holds, and
    a GPU at its ceiling may give none. What the device chooses by itself is no cap.
    """
    held = []
    for time_s, achieved in looks:
        clock_mhz = asked.steady_mhz(time_s - settle_s, time_s)
        if clock_mhz is not None:
            held.append(is_held(clock_mhz, achieved.clock_mhz))
    return bool(held) and not median(held)
