"""A few changes of clock, timed in steps: between two looks somebody else lets the device's time pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeVar

from perseus_ds.device.conflict import is_at
from perseus_ds.device.gpu import Gpu
from perseus_ds.device.record import Achieved, EventReason

T = TypeVar("T")

_TRIES = 3
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
    """One change of clock: how long the call took, and how long until the new clock was achieved.

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
    def told(self) -> bool:
        """Whether the looks came closely enough to inform the latency."""
        return self.total_s is not None and self.blur_s <= max(_FINE_S, _COARSEST * self.total_s)


class CounterTicks:
    """Ticks of the energy counter, noted while something else is waited for."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._there = gpu.capabilities().counter_period_s is not None
        self._began_s = gpu.now_s()
        self._seen_j = gpu.energy_j() if self._there else 0.0
        self._changes_s: list[float] = []

    def look(self) -> None:
        """See whether it has moved."""
        if self._there and len(self._changes_s) < _TICKS and (now_j := self._gpu.energy_j()) != self._seen_j:
            self._changes_s.append(self._gpu.now_s())
            self._seen_j = now_j

    def wait(self, for_s: float) -> Steps[None]:
        """Look on for a while."""
        until_s = self._gpu.now_s() + for_s
        while (left_s := until_s - self._gpu.now_s()) > 0:
            yield min(left_s, _POLL_S)
            self.look()

    def rest(self) -> Steps[None]:
        """Look on until it has moved often enough, or for long enough."""
        until_s = self._began_s + _COUNTER_LIMIT_S
        while self._there and len(self._changes_s) < _TICKS and self._gpu.now_s() < until_s:
            yield _POLL_S
            self.look()

    @property
    def period_s(self) -> float | None:
        """Time between changes, or ``None`` where it did not move."""
        gaps_s = [later - earlier for earlier, later in pairwise(self._changes_s)]
        return median(gaps_s) if gaps_s else None


def switches(gpu: Gpu, ticks: CounterTicks, done: list[Switch], *, in_step: bool) -> Steps[None]:
    """Between the highest clock and the middle; where one is not reached, once more below what was."""
    clocks_mhz = gpu.capabilities().clocks_mhz
    yield from _to_and_fro(gpu, ticks, done, clocks_mhz, in_step=in_step)
    missed = done[-1]
    idles = missed.idle or missed.seen_mhz < _IDLE_BELOW * clocks_mhz[0]
    if missed.total_s is None and not idles and missed.seen_mhz < missed.to_mhz:
        clocks_mhz = tuple(clock for clock in clocks_mhz if clock <= missed.seen_mhz - _WAVER_MHZ)
        if len(clocks_mhz) > 1:
            yield from _to_and_fro(gpu, ticks, done, clocks_mhz, in_step=in_step)


def _to_and_fro(
    gpu: Gpu, ticks: CounterTicks, done: list[Switch], clocks_mhz: Sequence[int], *, in_step: bool
) -> Steps[None]:
    """Down first, from wherever it was (it counts only if it fails), then up and down in turn."""
    high_mhz, low_mhz = clocks_mhz[0], clocks_mhz[len(clocks_mhz) // 2]
    first = yield from _change(gpu, ticks, high_mhz, low_mhz)
    if first.total_s is None:
        done.append(first)
        return
    for way in [(low_mhz, high_mhz), (high_mhz, low_mhz)] * _TRIES:
        if in_step:
            yield from ticks.wait(_BEAT_S - gpu.now_s() % _BEAT_S)
        done.append((yield from _change(gpu, ticks, *way)))
        if done[-1].total_s is None:
            return


def _change(gpu: Gpu, ticks: CounterTicks, from_mhz: int, to_mhz: int) -> Steps[Switch]:
    """Ask for a clock, and look until it is there or has had its time."""
    began_s = gpu.now_s()
    gpu.lock_clock(to_mhz)
    gpu.sync()
    looked_s = gpu.now_s()
    call_s, until_s = looked_s - began_s, looked_s + _LIMIT_S
    limited = _LimitedRise(from_mhz, to_mhz)
    while True:
        seen, now_s = gpu.achieved(), gpu.now_s()
        look = _Look((looked_s + now_s) / 2, now_s - looked_s)
        arrived = look if is_at(to_mhz, seen) else limited.arrived(seen, look)
        if arrived is not None:
            return Switch(from_mhz, to_mhz, call_s, arrived.at_s - began_s, arrived.blur_s)
        if now_s >= until_s:
            fell = seen.clock_mhz < to_mhz and gpu.load_pct() == 0
            idle = fell or bool(seen.event_reasons & EventReason.GPU_IDLE)
            return Switch(from_mhz, to_mhz, call_s, None, idle=idle, seen_mhz=seen.clock_mhz)
        looked_s = now_s
        ticks.look()
        yield _POLL_S


class _Look(NamedTuple):
    """When the clock was seen: between two looks, that far apart."""

    at_s: float
    blur_s: float


class _LimitedRise:
    """A rise that power or heat stops below the clock that was asked for.

    Where the limit follows the load, the clock itself is reached much later, when a light kernel runs. The
    change is over when the clock has left the old one and rises no more.
    """

    def __init__(self, from_mhz: int, to_mhz: int) -> None:
        self._rises = to_mhz > from_mhz
        self._highest_mhz = from_mhz
        self._since: _Look | None = None

    def arrived(self, seen: Achieved, look: _Look) -> _Look | None:
        """Return the look that first saw the clock where it has stood for ``_STANDS_S``."""
        if not self._rises or not seen.event_reasons.spoils:
            return None
        if seen.clock_mhz > self._highest_mhz + _WAVER_MHZ:
            self._highest_mhz, self._since = seen.clock_mhz, look
        stands = self._since is not None and look.at_s - self._since.at_s >= _STANDS_S
        return self._since if stands else None
