"""What a guard does for a GPU that a client has taken: write, read back, report, lapse, put back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection

from perseus_ds.device.conflict import ConflictKind, Rule, conflicts
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.guard.claim.patience import insist
from perseus_ds.device.guard.serving.writer import ClockWriter, WriterFigures
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError

_LONGEST_LEASE_S = 600.0
_SHORTEST_LEASE_S = 0.1
_PATIENCE_S = 2.0  # with a driver that refuses to be read at the start
_STRIKES = 3  # looks in a row before a foreign clock counts as one

Warn = Callable[[ConflictKind, str], None]


class Control:
    """A claim, its writer, and the lease that a client keeps by speaking."""

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
        self._writer = ClockWriter(claim, now_s=now_s)
        self._profiles: frozenset[int] | None = None

    def begin(self) -> None:
        """Look at what must not change from here on.

        Raises:
            DeviceError: the device does not answer; it is let go.
        """
        try:
            insist(self._read_profiles, for_s=_PATIENCE_S)
        except DeviceError:
            with contextlib.suppress(DeviceError):
                self.release()
            raise

    def _read_profiles(self) -> None:
        self._profiles = self.claim.gpu.power_profiles()

    def report_conditions(self) -> None:
        """Say what stands in the way from the start."""
        for remark in self.claim.remarks:
            self._warn(ConflictKind.BAD_JOURNAL, f"{ConflictKind.BAD_JOURNAL.text}: {remark}")
        found_mhz = self.claim.preexisting_mhz
        if found_mhz is not None:
            self._warn(
                ConflictKind.PREEXISTING_LOCK, f"{ConflictKind.PREEXISTING_LOCK.text}: {found_mhz} MHz"
            )
        if self.claim.passed is not None:
            self._warn(ConflictKind.NAME_TAKEN, f"{ConflictKind.NAME_TAKEN.text}: {self.claim.passed}")
        if self.claim.gpu.capabilities().persistence is False:
            self._warn(ConflictKind.PERSISTENCE_OFF, ConflictKind.PERSISTENCE_OFF.text)

    def renew(self) -> None:
        """Note that the client has spoken."""
        self._renewed_s, self._lapsed = self._now_s(), False

    def request(self, number: int, clock_mhz: int | None) -> None:
        """Note a request (``None``: as it was found)."""
        self._writer.request(number, clock_mhz)

    def step(self) -> None:
        """Write what was asked, read back what is due, and notice a client that fell silent.

        Raises:
            DeviceError: control is given up; the clock goes back, as soon as the driver lets it.
        """
        try:
            if not self._lapsed and self._now_s() > self._renewed_s + self._lease_s:
                self._lapsed = True
                self._writer.release()
            self._writer.step()
            self._observe()
        except DeviceError:
            self._writer.release()
            self._writer.step()
            raise

    def due_s(self) -> float | None:
        """When `step` has something to do though nobody speaks."""
        observe_s, lapse_s = self._writer.due_s(), self._renewed_s + self._lease_s
        if self._lapsed:
            return observe_s
        return lapse_s if observe_s is None else min(observe_s, lapse_s)

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
                self._observe_profiles()
        except DeviceLostError as error:
            self._warn(ConflictKind.GPU_LOST, error.message)
            raise
        if seen is None:
            return
        found = conflicts(seen.locked_mhz, seen.achieved, reached=seen.reached, settled=seen.settled)
        for conflict in found:
            self._warn(conflict.kind, conflict.line)
        fatal = [conflict for conflict in found if conflict.rule is Rule.GIVE_UP]
        if seen.settled:
            self._strikes = self._strikes + 1 if fatal else 0
        if self._strikes >= _STRIKES:
            raise DeviceUnavailableError(fatal[0].line, hint="control is given up")

    def _observe_profiles(self) -> None:
        """Say it once for every change: the new profiles are what the next look compares with."""
        if self._profiles is None:
            return
        try:
            now = self.claim.gpu.power_profiles()
        except DeviceLostError:
            raise
        except DeviceError:
            return  # the next look tells
        if now != self._profiles:
            kind, before = ConflictKind.POWER_PROFILE, self._profiles
            self._warn(kind, f"{kind.text}: {_listed(before)} before, {_listed(now or ())} now")
            self._profiles = now


def _listed(profiles: Collection[int]) -> str:
    return ", ".join(map(str, sorted(profiles))) or "none"
