"""Applies clock requests to one GPU: in order, the last one wins, what changes nothing is skipped.

A driver that refuses is asked again, soon and then less often. What stands in the driver is taken as known
only after a call that succeeded: after a failed one nothing is skipped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from perseus_ds.device.conflict import is_at
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.guard.claim.patience import may_pass, pauses_s
from perseus_ds.device.record import Achieved, EventReason
from perseus_ds.errors import DeviceError

_KEPT = 256
_ENOUGH = 100
_READ_BACK_S = 0.25
_SETTLE_POLL_S = 0.005
_SETTLE_LIMIT_S = 0.25
_PATIENCE_S = 2.0  # with a driver that refuses a client's request
_FREED_LOOKS = 5  # at a clock that was given back, and seems not to be
_TIMED_EVERY = 8  # changes of clock whose settling is watched from its beginning


@dataclass(frozen=True, slots=True)
class Applied:
    """A request that reached the driver; ``clock_mhz`` of ``None`` is the clock without a request."""

    number: int
    clock_mhz: int | None
    call_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading of the clock that a request asked for.

    ``reached``: it was seen there; ``settled``: it is there or has had the time to be.
    """

    locked_mhz: int
    achieved: Achieved
    reached: bool
    settled: bool = True


@dataclass(frozen=True, slots=True)
class WriterFigures:
    """What the writer has seen so far; ``retries`` counts calls that the driver refused for a moment."""

    asked: int
    applied: int
    call_s: float | None
    settle_s: float | None
    retries: int = 0


@dataclass(slots=True)
class _Refusals:
    """A driver that refuses: since when, and when it is asked again."""

    since_s: float
    pauses_s: Iterator[float]
    again_s: float = 0.0


class ClockWriter:
    """Writes a GPU's clock. `request` notes, `step` writes, `observe` reads back at a bounded rate."""

    def __init__(self, claim: GpuClaim, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._claim = claim
        self._now_s = now_s
        self._wanted: tuple[int, int | None] | None = None
        self._releasing = False
        self._trouble: _Refusals | None = None
        self._unread_s: float | None = None
        self._stored_mhz: int | None = None
        self._known = True
        self._freed_mhz: int | None = None
        self._freed_looks = 0
        self._asked = self._applied = self._newest = self._retries = 0
        self._calls_s: deque[float] = deque(maxlen=_KEPT)
        self._settles_s: deque[float] = deque(maxlen=_KEPT)
        self._written_s = 0.0
        self._reached = False
        self._observe_s = self._told_s = 0.0

    @property
    def pending(self) -> bool:
        """Whether something was asked and is not done: the driver refuses for the moment."""
        return self._wanted is not None

    def request(self, number: int, clock_mhz: int | None) -> None:
        """Note a request; one that is older than the newest is stale and dropped."""
        self._asked += 1
        if number > self._newest:
            self._newest = number
            self._wanted = (number, clock_mhz)
            self._releasing = False

    def again(self, number: int, clock_mhz: int | None) -> None:
        """Note a request once more that was the newest when the clock was given back."""
        if number == self._newest:
            self._wanted, self._releasing = (number, clock_mhz), False

    def release(self) -> None:
        """Give the clock back, whatever was asked: tried until it is done or something else is asked."""
        self._wanted, self._releasing = (self._newest, None), True

    def step(self) -> Applied | None:
        """Write the newest request, if it changes anything, or try again what was refused.

        Raises:
            DeviceError: the driver refused, and for good or for too long; the request is gone.
        """
        if self._wanted is None or (self._trouble is not None and self._now_s() < self._trouble.again_s):
            return None
        number, clock_mhz = self._wanted
        if self._known and clock_mhz == self._stored_mhz:
            self._wanted = self._trouble = None
            return None
        began_s = self._now_s()
        try:
            self._write(clock_mhz)
        except DeviceError as error:
            self._refused(error)
            return None
        self._note(clock_mhz, began_s)
        return Applied(number, clock_mhz, self._calls_s[-1])

    def due_s(self) -> float | None:
        """When there is something to do though nobody asks; ``None``: never."""
        times_s = [self.next_observation_s()]
        if self._wanted is not None:
            times_s.append(0.0 if self._trouble is None else self._trouble.again_s)
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def next_observation_s(self) -> float | None:
        """When `observe` is due, or ``None`` while no clock is locked."""
        return None if self._stored_mhz is None and self._freed_mhz is None else self._observe_s

    def observe(self) -> Observation | None:
        """Read the achieved clock back, when that is due and the clock has had time to settle.

        Raises:
            DeviceError: it could not be read, and for good or for too long.
        """
        now_s, due_s = self._now_s(), self.next_observation_s()
        if due_s is None or now_s < due_s:
            return None
        try:
            achieved = self._claim.gpu.achieved()
        except DeviceError as error:
            self._unread(error, now_s)
            return None
        self._unread_s = None
        if self._stored_mhz is None:
            self._check_freed(achieved, now_s)
            return None
        return self._judged(self._stored_mhz, achieved, now_s)

    @property
    def slow_call_s(self) -> float:
        """What one call of a hundred takes at least; 0 before there were a hundred."""
        calls_s = sorted(self._calls_s)
        return calls_s[-1 - len(calls_s) // 100] if len(calls_s) >= _ENOUGH else 0.0

    def figures(self) -> WriterFigures:
        """Sum up."""
        call_s = median(self._calls_s) if self._calls_s else None
        settle_s = median(self._settles_s) if self._settles_s else None
        return WriterFigures(self._asked, self._applied, call_s, settle_s, self._retries)

    def _note(self, clock_mhz: int | None, began_s: float) -> None:
        """Take a clock as stored in the driver."""
        before_mhz, self._stored_mhz, self._known = self._stored_mhz, clock_mhz, True
        self._wanted = self._trouble = None
        self._written_s, self._reached = self._now_s(), False
        self._calls_s.append(self._written_s - began_s)
        if clock_mhz is None:
            self._freed_mhz = self._freed_mhz or before_mhz
            self._observe_s = self._written_s + _SETTLE_LIMIT_S
        else:
            self._freed_mhz, self._freed_looks = None, 0
            timed = self._applied % _TIMED_EVERY == 0
            self._observe_s = self._written_s + (
                _SETTLE_POLL_S if timed else self._until_next_observation_s()
            )
        self._applied += 1

    def _refused(self, error: DeviceError) -> None:
        """Plan the next try, or give the request up."""
        now_s, self._known = self._now_s(), False
        self._freed_mhz = self._freed_mhz or self._stored_mhz
        if self._trouble is None:
            self._trouble = _Refusals(now_s, pauses_s())
        if not self._releasing and (not may_pass(error) or now_s > self._trouble.since_s + _PATIENCE_S):
            self._wanted = self._trouble = None
            raise error
        self._trouble.again_s = now_s + next(self._trouble.pauses_s)
        self._retries += 1

    def _unread(self, error: DeviceError, now_s: float) -> None:
        """Look again later, or report that the clock cannot be read."""
        if self._unread_s is None:
            self._unread_s = now_s
        if not may_pass(error) or now_s > self._unread_s + _PATIENCE_S:
            self._unread_s = None
            raise error
        self._observe_s = now_s + _READ_BACK_S / 4

    def _check_freed(self, achieved: Achieved, now_s: float) -> None:
        """Ask again for a clock of the device's own choice that still stands where it was locked."""
        stands = self._freed_mhz is not None and achieved.clock_mhz == self._freed_mhz
        for_a_reason = achieved.event_reasons & ~EventReason.APPLICATIONS_CLOCKS
        highest = achieved.clock_mhz >= self._claim.gpu.capabilities().default_clock_mhz
        self._freed_looks += 1
        if not stands or for_a_reason or highest or self._freed_looks > _FREED_LOOKS:
            self._freed_mhz, self._freed_looks = None, 0
            return
        self._known, self._observe_s = False, now_s + _SETTLE_LIMIT_S
        if self._wanted is None:
            self.release()

    def _judged(self, locked_mhz: int, achieved: Achieved, now_s: float) -> Observation | None:
        if not self._reached and is_at(locked_mhz, achieved):
            self._reached = True
            self._settles_s.append(now_s - self._written_s)
        settled = self._reached or now_s - self._written_s >= _SETTLE_LIMIT_S
        self._observe_s = now_s + (_READ_BACK_S if settled else _SETTLE_POLL_S)
        if not settled and now_s < self._told_s + _READ_BACK_S:
            return None
        self._told_s = now_s
        return Observation(locked_mhz, achieved, self._reached, settled)

    def _until_next_observation_s(self) -> float:
        """Time to settle, and no longer than until the next reading is due, however often clocks change."""
        return min(_READ_BACK_S, max(_SETTLE_POLL_S, self._told_s + _READ_BACK_S - self._written_s))

    def _write(self, clock_mhz: int | None) -> None:
        if clock_mhz is None:
            self._claim.restore()
        else:
            self._claim.lock_clock(clock_mhz)
