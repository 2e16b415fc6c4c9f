"""Writes a claimed GPU's clock for one client: due requests, read-back, conflicts, and the client's lease.

Requests have a moment and a number; the last one that is due wins, and what changes nothing is skipped. A
driver that refuses is asked again, soon and then less often. What is stored in the driver is taken as known
only after a call that succeeded: after a failed one nothing is skipped.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, RequestCounts, overdue_s
from perseus_ds.device.gpu import (
    Achieved,
    ConflictKind,
    EventReason,
    Reaction,
    conflicts,
    is_at,
    setting_changes,
)
from perseus_ds.errors import (
    DeviceError,
    DeviceLostError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)
from perseus_ds.guard.claim import GpuClaim, is_transient, pauses_s, retry
from perseus_ds.guard.protocol import Value

_LONGEST_LEASE_S = 600.0
_SHORTEST_LEASE_S = 0.1
_PATIENCE_S = 2.0  # with a driver that refuses a client's request, or to be read
_STRIKES = 3  # looks in a row before a clock above its lock counts as foreign
_STRIKES_BELOW = 8  # one below it: the driver's figure of the load is up to a second old
_CLEAR_S = 0.002  # no look so shortly before a request is due
_MAX_WAITING = 4096
_READ_BACK_S = 0.25
_SOONEST_LOOK_S = 0.005
_FREED_LOOKS = 5  # at a clock that was given back, and seems not to be
_SETTINGS_PERIOD_S = 1.0  # of looks at what operators set: half a dozen calls
_CALLS_KEPT = 256
_CALLS_ENOUGH = 100


class ClockWriter:
    """A claim, the clock that its client wants, and the lease that the client keeps by sending.

    `request` notes a clock and `step` does what is due, both on the thread of the client's connection;
    `due_s` says when. ``expired``: the client was silent for a lease, and its clock is given back until it
    sends again. ``refused_mhz`` is the clock that the driver refused last; ``stored_mhz`` the one in the
    driver by a request.
    """

    def __init__(
        self,
        claim: GpuClaim,
        *,
        lease_s: float,
        warn: Callable[[ConflictKind, str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at what must not change from here on; a device that does not answer is released."""
        self.claim = claim
        self._warn = warn
        self._now_s = now_s
        self._lease_s = min(max(lease_s, _SHORTEST_LEASE_S), _LONGEST_LEASE_S)
        self._renewed_s = now_s()
        self.expired = False
        # requests
        self._queue = ClockAgenda()
        self._present = DatedClock(-math.inf, None)  # the newest that is due
        self._late_raises = 0
        self._wanted_mhz: int | None = None
        self.pending = False
        self._releasing = False
        # the driver
        self.stored_mhz: int | None = None
        self.refused_mhz: int | None = None
        self._known = True
        self._refused_since_s: float | None = None
        self._retry_s = -math.inf
        self._pauses_s: Iterator[float] = pauses_s()
        self._calls_s: deque[float] = deque(maxlen=_CALLS_KEPT)
        # read-back
        self._call_s, self._latency_s, self._held_mhz = 0.0, math.inf, 0.0
        self._written_s = self._look_s = self._looked_s = 0.0
        self._reached = False
        self._unread_since_s: float | None = None
        self._freed_mhz: int | None = None
        self._freed_looks = self._strikes = 0
        self._settings_s = now_s()
        try:
            self._settings = retry(self._read_settings, _PATIENCE_S)
        except DeviceError:
            with contextlib.suppress(DeviceError):
                self.release()
            raise

    def report_conditions(self) -> None:
        """Report what stands in the way from the start."""
        if self.claim.remark:
            self._report(ConflictKind.BAD_JOURNAL, self.claim.remark)
        if self.claim.locked_before_mhz is not None:
            self._report(ConflictKind.PREEXISTING_LOCK, f"{self.claim.locked_before_mhz} MHz")
        if self.claim.gpu.capabilities().persistence is False:
            self._report(ConflictKind.PERSISTENCE_OFF)

    def renew(self) -> None:
        """Note that the client has sent something; one whose lease had expired gets its last clock back."""
        if self.expired:
            self._want(self._present.clock_mhz)
        self._renewed_s, self.expired = self._now_s(), False

    def expect(self, *, call_s: float, latency_s: float, held_mhz: float) -> None:
        """Note what the client's plan expects: how long a call takes, and until its clock is in force.

        ``held_mhz`` is the highest clock that was measured to hold under the job's load, 0 where not known.
        """
        self._call_s, self._latency_s, self._held_mhz = call_s, latency_s, held_mhz

    def request(self, number: int, clock_mhz: int | None, due_s: float | None = None) -> None:
        """Note a request (``None``: the clock without one), for a moment (``None``: now)."""
        if len(self._queue) >= _MAX_WAITING:
            raise DeviceUnsupportedError(f"malformed message: {_MAX_WAITING} requests wait already")
        now_s = self._now_s()
        clock_mhz = None if clock_mhz is None else self.claim.gpu.granted_mhz(clock_mhz)
        self._queue.put(DatedClock(now_s if due_s is None else due_s, clock_mhz, number=number))
        self._take_due(now_s)

    def step(self) -> None:
        """Write what is due, read back what is due, and notice a client that fell silent.

        A `DeviceError` ends control: the clock goes back, as soon as the driver lets it.
        """
        try:
            if not self.expired and self._now_s() > self._renewed_s + self._lease_s:
                self.expired = True
                self._queue.clear()
                self._want(None, give_back=True)
            self._take_due(self._now_s())
            self._write()
            if not self._is_close(self._queue.due_s):
                self._observe()
        except DeviceError:
            self._want(None, give_back=True)
            self._write()
            raise

    def due_s(self) -> float | None:
        """Return when `step` has something to do though no message arrives; ``None``: never."""
        request_s = self._queue.due_s
        if self._is_close(request_s) and not self.pending:
            return request_s
        retry_s = max(self._retry_s, 0.0) if self.pending else None
        lease_s = None if self.expired else self._renewed_s + self._lease_s
        times_s = (request_s, retry_s, self._next_look_s(), lease_s)
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    @property
    def counts(self) -> RequestCounts:
        return self._queue.counts

    def report(self) -> dict[str, Value]:
        return {**asdict(self.counts), "late_raises": self._late_raises}

    def release(self) -> None:
        """Restore the GPU's clock and let the GPU go, whether that succeeds or not."""
        try:
            self.claim.release()
        finally:
            with contextlib.suppress(DeviceError):
                self.claim.gpu.close()

    def _take_due(self, now_s: float) -> None:
        """Make the newest request that is due the wanted one; one that is older than it is dropped."""
        due = self._queue.take(now_s)
        if due is not None and due.number > self._present.number:
            self.counts.overtaken += self.pending and self._present.clock_mhz is not None
            self._present = due
            self._want(due.clock_mhz)

    def _want(self, clock_mhz: int | None, *, give_back: bool = False) -> None:
        """Have a clock written; what is given back is tried until it is done or something else is asked."""
        self._wanted_mhz, self.pending, self._releasing = clock_mhz, True, give_back

    def _write(self) -> None:
        """Write what is wanted, if it changes anything, or try again what was refused.

        A `DeviceError` is a refusal for good or for too long; the request is gone.
        """
        began_s, clock_mhz = self._now_s(), self._wanted_mhz
        if not self.pending or began_s < self._retry_s:
            return
        if not (self._known and clock_mhz == self.stored_mhz):
            try:
                self.claim.apply(clock_mhz)
            except DeviceError as error:
                self._on_refusal(error, clock_mhz)
                return
            self._on_stored(clock_mhz, began_s)
        self._end_request()

    def _end_request(self) -> None:
        self.pending, self._refused_since_s, self._retry_s = False, None, -math.inf

    def _on_stored(self, clock_mhz: int | None, began_s: float) -> None:
        """Take a clock as stored in the driver, count it, and plan the next look."""
        before_mhz, now_s = self.stored_mhz, self._now_s()
        self.stored_mhz, self._known = clock_mhz, True
        self._written_s, self._reached = now_s, False
        self._calls_s.append(now_s - began_s)
        if clock_mhz is None:
            self._freed_mhz = self._freed_mhz or before_mhz
            self._look_s = now_s + _READ_BACK_S
        else:
            self._freed_mhz, self._freed_looks = None, 0
            # time to settle, and no longer than until the next look is due, however often clocks change
            until_look_s = max(_SOONEST_LOOK_S, self._looked_s + _READ_BACK_S - now_s)
            self._look_s = now_s + min(_READ_BACK_S, until_look_s)
        if self._releasing:
            return
        late_s = max(0.0, now_s - self._present.due_s - self._call_s)
        self.counts.record_change(late_s=late_s)
        higher = before_mhz is not None and (clock_mhz is None or clock_mhz > before_mhz)
        calls_s = sorted(self._calls_s)  # what one of a hundred takes at least is slow; before, none is
        slow_s = calls_s[-1 - len(calls_s) // 100] if len(calls_s) >= _CALLS_ENOUGH else 0.0
        self._late_raises += higher and late_s > overdue_s(self._latency_s, slow_call_s=slow_s)

    def _on_refusal(self, error: DeviceError, clock_mhz: int | None) -> None:
        """Ask for the clock that substitutes a refused one, plan the next try, or give the request up."""
        now_s, self._known = self._now_s(), False
        self._freed_mhz = self._freed_mhz or self.stored_mhz
        if self._refused_since_s is None:
            self._refused_since_s, self._pauses_s = now_s, pauses_s()
        if not self._releasing and (not is_transient(error) or now_s > self._refused_since_s + _PATIENCE_S):
            self._end_request()
            instead_mhz = None if clock_mhz is None else self.claim.gpu.granted_mhz(clock_mhz)
            if not isinstance(error, ValueRefusedError) or instead_mhz == clock_mhz:
                raise error
            # the next higher clock: nothing is slower, and the job goes on
            self.refused_mhz, self._present = clock_mhz, replace(self._present, clock_mhz=instead_mhz)
            self._want(instead_mhz)
            self._report(ConflictKind.CLOCK_REFUSED, error.message)
            return
        self._retry_s = now_s + next(self._pauses_s)

    def _is_close(self, due_s: float | None) -> bool:
        """Return whether a request is due so soon that a look at the clock could delay it."""
        return due_s is not None and due_s < self._now_s() + _CLEAR_S

    def _next_look_s(self) -> float | None:
        return None if self.stored_mhz is None and self._freed_mhz is None else self._look_s

    def _observe(self) -> None:
        """Read the clock back, when that is due, and judge it.

        A `DeviceError`: it cannot be read, for good or for too long, or somebody else sets clocks.
        """
        now_s, due_s = self._now_s(), self._next_look_s()
        try:
            if due_s is None or now_s < due_s:
                return
            self._look_s = now_s + _READ_BACK_S  # an error is no reason to look again at once
            if (seen := self._read(now_s)) is None:
                return
            self._looked_s = now_s
            if self.stored_mhz is None:
                self._check_freed(seen, now_s)
                return
            self.claim.keep_journal()
            self._observe_settings(now_s)
            self._judge(self.stored_mhz, seen, now_s)
        except DeviceLostError as error:
            self._warn(ConflictKind.GPU_LOST, error.message)
            raise

    def _read(self, now_s: float) -> Achieved | None:
        """Read the clock; where the driver refuses for a moment, look again later."""
        try:
            seen = self.claim.gpu.achieved()
        except DeviceError as error:
            since_s = now_s if self._unread_since_s is None else self._unread_since_s
            if not is_transient(error) or now_s > since_s + _PATIENCE_S:
                self._unread_since_s = None
                raise
            self._unread_since_s, self._look_s = since_s, now_s + _READ_BACK_S / 4
            return None
        self._unread_since_s = None
        return seen

    def _check_freed(self, seen: Achieved, now_s: float) -> None:
        """Ask again for a clock of the device's own choice that is still where it was locked."""
        stands = self._freed_mhz is not None and seen.clock_mhz == self._freed_mhz
        for_a_reason = seen.event_reasons & ~EventReason.APPLICATIONS_CLOCKS
        highest = seen.clock_mhz >= self.claim.gpu.capabilities().default_clock_mhz
        self._freed_looks += 1
        if not stands or for_a_reason or highest or self._freed_looks > _FREED_LOOKS:
            self._freed_mhz, self._freed_looks = None, 0
            return
        self._known, self._look_s = False, now_s + _READ_BACK_S
        if not self.pending:
            self._want(None, give_back=True)

    def _judge(self, locked_mhz: int, seen: Achieved, now_s: float) -> None:
        """Report conflicts, and give control up where somebody else sets clocks again and again."""
        self._reached = self._reached or is_at(locked_mhz, seen)
        settled = self._reached or now_s - self._written_s >= _READ_BACK_S
        idle = seen.clock_mhz < locked_mhz and self._is_idle()
        found = conflicts(locked_mhz, seen, held_mhz=self._held_mhz, idle=idle, settled=settled)
        for conflict in found:
            self._warn(conflict.kind, conflict.line)
        fatal = [conflict for conflict in found if conflict.kind.action is Reaction.GIVE_UP]
        if settled:
            self._strikes = self._strikes + 1 if fatal else 0
        if self._strikes >= (_STRIKES if seen.clock_mhz > locked_mhz else _STRIKES_BELOW):
            raise DeviceUnavailableError(fatal[0].line, hint="control is given up")

    def _is_idle(self) -> bool:
        """Return whether nobody has worked on the GPU of late; an unknown load may be none."""
        try:
            return self.claim.gpu.load_pct() == 0
        except DeviceLostError:
            raise
        except DeviceError:
            return True  # the next look tells

    def _read_settings(self) -> dict[str, str]:
        return self.claim.gpu.operator_settings().fields()

    def _observe_settings(self, now_s: float) -> None:
        """Report every change of what operators set, now and then; the next look compares with the new."""
        if not self._settings or now_s < self._settings_s + _SETTINGS_PERIOD_S:
            return
        self._settings_s, now = now_s, self._read_settings()
        for words in setting_changes(self._settings, now):
            self._report(ConflictKind.SETTING_CHANGED, words)
        self._settings |= {name: text for name, text in now.items() if name in self._settings}

    def _report(self, kind: ConflictKind, words: str = "") -> None:
        self._warn(kind, f"{kind.text}: {words}" if words else kind.text)
