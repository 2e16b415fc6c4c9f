"""Applies clock requests to one GPU: in order, the last one wins, what changes nothing is skipped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from perseus_ds.device.conflict import is_at
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.record import Achieved

_KEPT = 256
_READ_BACK_S = 0.25
_SETTLE_POLL_S = 0.005
_SETTLE_LIMIT_S = 0.25
_TIMED_EVERY = 8  # changes of clock whose settling is watched from its beginning


@dataclass(frozen=True, slots=True)
class Applied:
    """A request that reached the driver; ``clock_mhz`` of ``None`` is "as it was found"."""

    number: int
    clock_mhz: int | None
    call_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading of the clock that a request asked for.

    ``reached`` says that it was seen there, ``settled`` that it is there or has had the time to be.
    """

    locked_mhz: int
    achieved: Achieved
    reached: bool
    settled: bool = True


@dataclass(frozen=True, slots=True)
class WriterFigures:
    """What the writer has seen so far."""

    asked: int
    applied: int
    call_s: float | None
    settle_s: float | None


class ClockWriter:
    """Writes a GPU's clock. `request` notes, `step` writes, `observe` reads back at a bounded rate."""

    def __init__(self, claim: GpuClaim, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._claim = claim
        self._now_s = now_s
        self._wanted: tuple[int, int | None] | None = None
        self._in_force_mhz: int | None = None
        self._asked = self._applied = self._newest = 0
        self._calls_s: deque[float] = deque(maxlen=_KEPT)
        self._settles_s: deque[float] = deque(maxlen=_KEPT)
        self._written_s = 0.0
        self._reached = False
        self._observe_s = self._told_s = 0.0

    def request(self, number: int, clock_mhz: int | None) -> None:
        """Note a request; one that is older than the newest is stale and dropped."""
        self._asked += 1
        if number > self._newest:
            self._newest = number
            self._wanted = (number, clock_mhz)

    def step(self) -> Applied | None:
        """Write the newest request, if it changes anything.

        Raises:
            DeviceError: the driver refused; the request is gone, the clock is as before.
        """
        if self._wanted is None:
            return None
        number, clock_mhz = self._wanted
        self._wanted = None
        if clock_mhz == self._in_force_mhz:
            return None
        began_s = self._now_s()
        self._write(clock_mhz)
        self._in_force_mhz = clock_mhz
        self._written_s, self._reached = self._now_s(), False
        self._calls_s.append(self._written_s - began_s)
        timed = self._applied % _TIMED_EVERY == 0
        self._observe_s = self._written_s + (_SETTLE_POLL_S if timed else self._until_next_observation_s())
        self._applied += 1
        return Applied(number, clock_mhz, self._calls_s[-1])

    def next_observation_s(self) -> float | None:
        """When `observe` is due, or ``None`` while no clock is locked."""
        return None if self._in_force_mhz is None else self._observe_s

    def observe(self) -> Observation | None:
        """Read the achieved clock back, when that is due and the clock has had time to settle."""
        now_s = self._now_s()
        if self._in_force_mhz is None or now_s < self._observe_s:
            return None
        achieved = self._claim.gpu.achieved()
        if not self._reached and is_at(self._in_force_mhz, achieved):
            self._reached = True
            self._settles_s.append(now_s - self._written_s)
        settled = self._reached or now_s - self._written_s >= _SETTLE_LIMIT_S
        self._observe_s = now_s + (_READ_BACK_S if settled else _SETTLE_POLL_S)
        if not settled and now_s < self._told_s + _READ_BACK_S:
            return None
        self._told_s = now_s
        return Observation(self._in_force_mhz, achieved, self._reached, settled)

    def figures(self) -> WriterFigures:
        """Sum up."""
        call_s = median(self._calls_s) if self._calls_s else None
        settle_s = median(self._settles_s) if self._settles_s else None
        return WriterFigures(self._asked, self._applied, call_s, settle_s)

    def _until_next_observation_s(self) -> float:
        """Time to settle, and no longer than until the next reading is due, however often clocks change."""
        return min(_READ_BACK_S, max(_SETTLE_POLL_S, self._told_s + _READ_BACK_S - self._written_s))

    def _write(self, clock_mhz: int | None) -> None:
        if clock_mhz is None:
            self._claim.restore()
        else:
            self._claim.gpu.lock_clock(clock_mhz)
