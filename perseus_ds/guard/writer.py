"""What a guard does for a GPU that a client has taken: write in time, read back, report, lapse, put back."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, overdue_s
from perseus_ds.device.gpu import Achieved, ConflictKind, EventReason, Reaction, changed, conflicts, is_at
from perseus_ds.errors import (
    DeviceError,
    DeviceLostError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)
from perseus_ds.guard.claim import GpuClaim, insist, may_pass, pauses_s

# Applies clock requests to one GPU: in order, the last one wins, what changes nothing is skipped.
#
# A driver that refuses is asked again, soon and then less often. What stands in the driver is taken as known
# only after a call that succeeded: after a failed one nothing is skipped.

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


_LONGEST_LEASE_S = 600.0
_SHORTEST_LEASE_S = 0.1
_STRIKES = 3  # looks in a row before a clock above its lock counts as foreign
_STRIKES_BELOW = 8  # one below it: the driver's figure of the load is up to a second old

_CLEAR_S = 0.002  # no look so shortly before a request is due
_MOST_WAITING = 4096
_SETTINGS_PERIOD_S = 1.0  # of looks at what operators set: half a dozen calls
_KINDS = {
    "power_limit": ConflictKind.POWER_LIMIT,
    "application_clock": ConflictKind.APPLICATION_CLOCK,
    "power_smoothing": ConflictKind.POWER_SMOOTHING,
    "power_profiles": ConflictKind.POWER_PROFILE,
}

Warn = Callable[[ConflictKind, str], None]


@dataclass(frozen=True, slots=True)
class ExpectedChange:
    """What the client's plan reckons with: how long a call takes, and until its clock is in force.

    ``held_mhz`` is the highest clock that this GPU was measured to hold under the job's load, 0 where that
    is not known.
    """

    call_s: float = 0.0
    latency_s: float = float("inf")
    held_mhz: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestReport:
    """How requests came to the driver, as of ``at_s``; moments are those at which calls have returned.

    ``number`` is the newest request that is done: stored there, or nothing new. ``late_raises`` are higher
    clocks that were stored when they were overdue, ``slow_call_s`` is what one call of a hundred takes.
    """

    number: int
    at_s: float
    changes: int
    late: int
    overtaken: int
    longest_late_s: float
    late_raises: int
    slow_call_s: float


class Control:
    """A claim, its writer, and the lease that a client keeps by speaking.

    ``refused_mhz`` is the clock that the driver refused last; None where it takes all that were asked for.
    """

    def __init__(
        self, claim: GpuClaim, *, lease_s: float, warn: Warn, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.claim = claim
        self._warn = warn
        self._now_s = now_s
        self._lease_s = min(max(lease_s, _SHORTEST_LEASE_S), _LONGEST_LEASE_S)
        self._renewed_s = now_s()
        self._lapsed = False
        self._strikes = 0
        self._agenda = ClockAgenda()
        self._present = DatedClock(-math.inf, None)
        self._stored_mhz: int | None = None
        self._done = self._late_raises = 0
        self._expected = ExpectedChange()
        self._writer = ClockWriter(claim, now_s=now_s)
        self.refused_mhz: int | None = None
        self._settings: dict[str, str] = {}
        self._settings_s = now_s()

    def begin(self) -> None:
        """Look at what must not change from here on.

        Raises:
            DeviceError: the device does not answer; it is let go.
        """
        try:
            insist(self._read_settings, for_s=_PATIENCE_S)
        except DeviceError:
            with contextlib.suppress(DeviceError):
                self.release()
            raise

    def _read_settings(self) -> None:
        found = self.claim.gpu.operator_settings()
        self._settings = {} if found is None else found.fields()

    def report_conditions(self) -> None:
        """Report what stands in the way from the start."""
        for remark in self.claim.remarks:
            self._warn(ConflictKind.BAD_JOURNAL, f"{ConflictKind.BAD_JOURNAL.text}: {remark}")
        locked_mhz, kind = self.claim.locked_before_mhz, ConflictKind.PREEXISTING_LOCK
        if locked_mhz is not None:
            self._warn(kind, f"{kind.text}: {locked_mhz} MHz")
        if self.claim.gpu.capabilities().persistence is False:
            self._warn(ConflictKind.PERSISTENCE_OFF, ConflictKind.PERSISTENCE_OFF.text)

    def renew(self) -> None:
        """Note that the client has sent something; one that had lapsed gets its last clock back."""
        if self._lapsed:
            self._writer.again(self._present.number, self._present.clock_mhz)
        self._renewed_s, self._lapsed = self._now_s(), False

    def expect(self, *, call_s: float, latency_s: float, held_mhz: float) -> None:
        """Note what the client's plan reckons with."""
        self._expected = ExpectedChange(call_s, latency_s, held_mhz)

    def request(self, number: int, clock_mhz: int | None, due_s: float | None = None) -> None:
        """Note a request (``None``: the clock without one), for a moment (``None``: now).

        Raises:
            DeviceUnsupportedError: more wait than anybody needs.
        """
        if len(self._agenda) >= _MOST_WAITING:
            raise DeviceUnsupportedError(f"malformed message: {_MOST_WAITING} requests wait already")
        now_s = self._now_s()
        clock_mhz = None if clock_mhz is None else self.claim.gpu.granted_mhz(clock_mhz)
        self._agenda.put(DatedClock(now_s if due_s is None else due_s, clock_mhz, number=number))
        self._take_due(now_s)

    def report(self) -> RequestReport:
        """Report how requests came to the driver so far."""
        counts = self._agenda.counts
        return RequestReport(
            self._done,
            self._now_s(),
            counts.changes,
            counts.late,
            counts.overtaken,
            counts.longest_late_s,
            self._late_raises,
            self._writer.slow_call_s,
        )

    def _take_due(self, now_s: float) -> None:
        """Have the writer write what is due."""
        due = self._agenda.take(now_s)
        if due is not None:
            self._agenda.counts.overtaken += self._writer.pending and self._present.clock_mhz is not None
            self._present = due
            self._writer.request(due.number, due.clock_mhz)

    def _write(self) -> None:
        """Write what is due, and count how late it was."""
        self._take_due(self._now_s())
        try:
            applied = self._writer.step()
        except ValueRefusedError as error:
            applied = None
            self._replace(error)
        if applied is not None:
            self._count(applied)
        if not self._writer.pending:
            self._done = self._present.number

    def _replace(self, error: ValueRefusedError) -> None:
        """Ask for the clock that stands for one that is refused: nothing is slower, and the job goes on."""
        refused_mhz = self._present.clock_mhz
        wanted_mhz = None if refused_mhz is None else self.claim.gpu.granted_mhz(refused_mhz)
        if wanted_mhz == refused_mhz:
            raise error
        self.refused_mhz, self._present = refused_mhz, replace(self._present, clock_mhz=wanted_mhz)
        self._writer.again(self._present.number, wanted_mhz)
        kind = ConflictKind.CLOCK_REFUSED
        self._warn(kind, f"{kind.text}: {error.message}")

    def _count(self, applied: Applied) -> None:
        before_mhz, self._stored_mhz = self._stored_mhz, applied.clock_mhz
        if (applied.number, applied.clock_mhz) != (self._present.number, self._present.clock_mhz):
            return  # put back by ourselves
        late_s = max(0.0, self._now_s() - self._present.due_s - self._expected.call_s)
        self._agenda.counts.made(late_s=late_s)
        higher = before_mhz is not None and (applied.clock_mhz is None or applied.clock_mhz > before_mhz)
        patience_s = overdue_s(self._expected.latency_s, slow_call_s=self._writer.slow_call_s)
        self._late_raises += higher and late_s > patience_s

    def step(self) -> None:
        """Write what is due, read back what is due, and notice a client that fell silent.

        Raises:
            DeviceError: control is given up; the clock goes back, as soon as the driver lets it.
        """
        try:
            if not self._lapsed and self._now_s() > self._renewed_s + self._lease_s:
                self._lapsed = True
                self._agenda.clear()
                self._writer.release()
            self._write()
            if not self._is_close(self._agenda.due_s):
                self._observe()
        except DeviceError:
            self._writer.release()
            self._writer.step()
            raise

    def due_s(self) -> float | None:
        """When `step` has something to do though no message arrives."""
        request_s = self._agenda.due_s
        if self._is_close(request_s) and not self._writer.pending:
            return request_s
        lapse_s = None if self._lapsed else self._renewed_s + self._lease_s
        times_s = (request_s, self._writer.due_s(), lapse_s)
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def _is_close(self, due_s: float | None) -> bool:
        """Whether a request is due so soon that a look at the clock could delay it."""
        return due_s is not None and due_s < self._now_s() + _CLEAR_S

    @property
    def clock_mhz(self) -> int | None:
        """The clock that stands in the driver by a request; None: there is none."""
        return self._stored_mhz

    @property
    def lapsed(self) -> bool:
        """Whether the client was silent for so long that its clock was given back."""
        return self._lapsed

    @property
    def pending(self) -> bool:
        """Whether the driver has yet to take what was asked."""
        return self._writer.pending

    def figures(self) -> WriterFigures:
        """What the writer has seen."""
        return self._writer.figures()

    def release(self) -> None:
        """Put the GPU back and let it go.

        Raises:
            DeviceError: it could not be put back; the journal stays.
        """
        try:
            self.claim.release()
        finally:
            with contextlib.suppress(DeviceError):
                self.claim.gpu.close()

    def _observe(self) -> None:
        try:
            seen = self._writer.observe()
            if seen is not None:
                self.claim.keep_journal()
                self._observe_settings()
        except DeviceLostError as error:
            self._warn(ConflictKind.GPU_LOST, error.message)
            raise
        if seen is None:
            return
        found = conflicts(
            seen.locked_mhz,
            seen.achieved,
            held_mhz=self._expected.held_mhz,
            idle=seen.achieved.clock_mhz < seen.locked_mhz and self._idle(),
            settled=seen.settled,
        )
        for conflict in found:
            self._warn(conflict.kind, conflict.line)
        fatal = [conflict for conflict in found if conflict.action is Reaction.GIVE_UP]
        if seen.settled:
            self._strikes = self._strikes + 1 if fatal else 0
        above = seen.achieved.clock_mhz > seen.locked_mhz
        if self._strikes >= (_STRIKES if above else _STRIKES_BELOW):
            raise DeviceUnavailableError(fatal[0].line, hint="control is given up")

    def _idle(self) -> bool:
        """Whether nobody has worked on the GPU of late; an unknown load may be one."""
        try:
            return self.claim.gpu.load_pct() == 0
        except DeviceLostError:
            raise
        except DeviceError:
            return True  # the next look tells

    def _observe_settings(self) -> None:
        """Report every change of what operators set, now and then; the next look compares with the new."""
        if self._now_s() < self._settings_s + _SETTINGS_PERIOD_S or self._is_close(self._agenda.due_s):
            return
        before, self._settings_s = self._settings, self._now_s()
        found = self.claim.gpu.operator_settings() if before else None
        now = {} if found is None else found.fields()
        for name, words in changed(before, now):
            kind = _KINDS[name]
            self._warn(kind, f"{kind.text}: {words}")
        self._settings = before | {name: text for name, text in now.items() if name in before}
