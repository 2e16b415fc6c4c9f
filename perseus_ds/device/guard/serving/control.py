"""What a guard does for a GPU that a client has taken: write in time, read back, report, lapse, put back."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from perseus_ds.device.clock_agenda import ClockAgenda, DatedClock, overdue_s
from perseus_ds.device.conflict import ConflictKind, Reaction, conflicts
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.guard.claim.patience import insist
from perseus_ds.device.guard.serving.writer import Applied, ClockWriter, WriterFigures
from perseus_ds.device.operator_settings import changed
from perseus_ds.errors import (
    DeviceError,
    DeviceLostError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    ValueRefusedError,
)

_LONGEST_LEASE_S = 600.0
_SHORTEST_LEASE_S = 0.1
_PATIENCE_S = 2.0  # with a driver that refuses to be read at the start
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
