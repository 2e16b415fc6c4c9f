"""What is logged of one client: the lease that it takes, its conflicts and refusals, and how it ends."""

from __future__ import annotations

import logging
import time

from perseus_ds.device.conflict import ConflictKind
from perseus_ds.device.guard.complain import not_restored
from perseus_ds.device.guard.protocol import Value
from perseus_ds.device.guard.service.peer import Peer
from perseus_ds.device.guard.service.service_log import log_event
from perseus_ds.device.guard.serving.control import Control
from perseus_ds.errors import DeviceError


class LeaseLog:
    """Lines about a client, each with who it is, its lease and GPU."""

    def __init__(self, peer: Peer, number: int = 0) -> None:
        self._peer = peer
        self._number = number
        self._control: Control | None = None
        self._owner = ""
        self._since_s = 0.0
        self._failure = ""
        self._lapsed = False

    def taken(self, control: Control, owner: str) -> None:
        """Log that it has a GPU now."""
        self._control, self._owner, self._since_s = control, owner, time.monotonic()
        self._event(
            "lease_taken",
            f"{control.claim.uuid} is taken by {owner} ({self._peer})",
            restore_clock_mhz=control.claim.restore_clock_mhz,
        )

    def refused(self, error: DeviceError, uuid: Value = None) -> None:
        """Log what it is refused; of a driver that refuses its clocks only what is new."""
        if self._control is not None and error.message == self._failure:
            return
        self._failure = error.message if self._control is not None else ""
        name = "lease_refused" if self._control is None else "clock_refused"
        said = f"refused to {self._owner or self._peer}: {error.message}"
        named: dict[str, Value] = {} if self._control is not None or uuid is None else {"gpu": str(uuid)[:80]}
        self._event(name, said, logging.WARNING, why=error.message, **named)

    def conflict(self, kind: ConflictKind, line: str) -> None:
        """Log who else is at work on its GPU."""
        self._event("conflict", f"{self._uuid}: {line}", logging.WARNING, kind=kind.name.lower(), why=line)

    def looked(self) -> None:
        """Log once that it sends nothing for too long, or sends again."""
        control = self._control
        if control is None or control.lapsed == self._lapsed:
            return
        self._lapsed = control.lapsed
        if self._lapsed:
            why = "the client sent nothing for too long: the clock is put back"
            self._event("lease_lapsed", f"{self._uuid}: {why}", logging.WARNING, why=why)
        else:
            self._event("lease_renewed", f"{self._uuid}: the client sends again")

    def ended(self, why: str, clock_mhz: int | None, failure: DeviceError | None) -> None:
        """Log how it ended, with what was set meanwhile; ``failure``: its clock is not put back."""
        if self._control is None:
            return
        report, held_s = self._control.report(), time.monotonic() - self._since_s
        after = "the clock is put back" if failure is None else not_restored(failure)
        self._event(
            "lease_ended",
            f"{self._uuid} was held for {held_s:.0f} s by {self._owner} ({self._peer}); {why}; {after}",
            logging.INFO if failure is None else logging.ERROR,
            why=why,
            held_s=round(held_s, 3),
            clock_mhz=clock_mhz,
            clock_changes=report.changes,
            late_changes=report.late,
            overtaken_requests=report.overtaken,
            restored=failure is None,
            failure=None if failure is None else failure.message,
        )

    @property
    def _uuid(self) -> str:
        return "" if self._control is None else self._control.claim.uuid

    def _event(self, name: str, message: str, level: int = logging.INFO, **fields: Value) -> None:
        who: dict[str, Value] = {
            "uid": self._peer.uid,
            "pid": self._peer.pid,
            "cgroup": self._peer.cgroup or None,
        }
        if self._control is not None:
            clock_mhz = self._control.clock_mhz
            who |= {"lease": self._number, "gpu": self._uuid, "owner": self._owner, "clock_mhz": clock_mhz}
        log_event(name, message, level, **who | fields)
