"""Others at work on our GPUs: seen by every rank on its own, logged once by rank 0, counted for each rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from perseus_ds.device.gpu import Capabilities, ConflictKind, Gpu, Sighting
from perseus_ds.errors import DeviceLostError, PerseusError
from perseus_ds.files import read_json
from perseus_ds.run_directory.paths import RunDirectory, write_json
from perseus_ds.runtime.event_log import EventLog

CONTROL = (ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK)

_MOST_BYTES = 32 << 20
_BITS = {kind: 1 << place for place, kind in enumerate(ConflictKind)}

KINDS = len(_BITS)
"""Number of kinds of conflict that can be reported."""


def conflict_rows(sightings: Sequence[Sighting]) -> list[dict[str, object]]:
    """Report what was seen of others at work on one rank's GPU, a row for each kind."""
    return [{"kind": one.kind.name.lower(), "line": one.line, "count": one.count} for one in sightings]


class ConflictMonitor:
    """Ask the device once per iteration; what it saw travels with the rank's status, one rank's at a time.

    What to do about a conflict is the guard's decision (it puts the clock back itself); a session leaves when
    `check` hands it the reason. Each loss of control and each return is reported, in turns, however soon one
    follows the other. ``controlled``: clocks were ours from the check before to the last one; ``known``: and
    the driver had stored them throughout.
    ``uncontrolled_s`` is when they were last seen not to be (device time).
    """

    def __init__(self, gpu: Gpu, log: EventLog, *, rank: int, directory: RunDirectory) -> None:
        self._gpu = gpu
        self._log = log
        self._rank = rank
        self._directory = directory
        self._lost: tuple[Sighting, ...] = ()
        self._known: dict[int, int] = {}
        self._logged = self._not_stored = 0
        self._stored = True
        self._spread = 0
        self.mask = 0
        self._in_control, self._lost_now = True, False
        self._losses = self._reported_losses = self._late = 0
        self._reported_lost = False
        self._without: set[int] = set()
        self.controlled = self.known = True
        self.uncontrolled_s = -math.inf

    def check(self, *, stored: bool = True) -> PerseusError | None:
        """Note new conflicts, and whether the driver has ``stored`` the requested clock by now.

        Returns why control was given up, if it was.
        """
        in_control = self._gpu.in_control()
        losses = returns = late = 0
        for sighting in self._gpu.conflicts():
            if sighting.kind is ConflictKind.CONTROL_LOST:
                losses = sighting.count
            elif sighting.kind is ConflictKind.CONTROL_BACK:
                returns = sighting.count
            else:
                self.mask |= _BITS[sighting.kind]
                late = sighting.count if sighting.kind is ConflictKind.NOT_STORED else late
        self.controlled = in_control and self._in_control and (losses, late) == (self._losses, self._late)
        if not self.controlled:
            self.uncontrolled_s = self._gpu.now_s()
        self._in_control, self._losses, self._lost_now = in_control, losses, losses > returns
        self._late = late
        self.known = stored and self._stored and self.controlled
        self._not_stored += self._stored and not stored
        self._stored = stored
        self.mask |= 0 if stored else _BITS[ConflictKind.NOT_STORED]
        return self._gpu.given_up()

    @property
    def refused_mhz(self) -> frozenset[int]:
        return self._gpu.refused_mhz()

    def expect_held(self, clock_mhz: int, able: Capabilities) -> None:
        """Take note of the highest clock that this GPU held under the job's load (0: none is known)."""
        call_s, latency_s = able.switch_call_s, able.switch_latency_s
        self._gpu.expect(call_s=call_s, latency_s=latency_s, held_mhz=clock_mhz)

    def sightings(self) -> tuple[Sighting, ...]:
        seen = self._gpu.conflicts()
        if self._not_stored:
            seen += (Sighting(ConflictKind.NOT_STORED, ConflictKind.NOT_STORED.text, self._not_stored),)
        return seen + tuple(one for one in self._lost if one.kind not in {other.kind for other in seen})

    def note_failure(self, error: PerseusError) -> None:
        """Note a lost device, and record this rank's conflicts while it can."""
        self.check(stored=self._stored)
        if isinstance(error, DeviceLostError):
            self._lost = (Sighting(ConflictKind.GPU_LOST, error.message, 1),)
            self.mask |= _BITS[ConflictKind.GPU_LOST]
        self._learn_of(self._rank, self.mask)

    def report(self) -> tuple[int, ...]:
        """Return for every kind 1 + this rank where it has a report that other ranks lack, else 0."""
        fresh = self.mask & ~self._spread
        if self._reported_lost:
            fresh |= 0 if self._lost_now else _BITS[ConflictKind.CONTROL_BACK]
        elif self._losses > self._reported_losses:
            fresh |= _BITS[ConflictKind.CONTROL_LOST]
        return tuple((self._rank + 1) * bool(fresh & bit) for bit in _BITS.values()) if fresh else ()

    def learn(self, reporters: Sequence[int]) -> None:
        """Note the reports of ranks: for every kind 1 + a rank, or 0; empty where no rank reports."""
        for (kind, bit), reporter in zip(_BITS.items(), reporters, strict=False):
            own = reporter - 1 == self._rank
            if reporter and kind in CONTROL:
                self._learn_of_control(reporter - 1, kind, own=own)
            elif reporter:
                self._learn_of(reporter - 1, bit)
                self._spread |= bit if own else 0

    def write(self) -> None:
        """Write this rank's counts to its file, if there are any."""
        seen = self.sightings()
        if not seen:
            return
        path, content = self._directory.rank(self._rank), None
        with suppress(OSError, PerseusError):
            content = read_json(path, most_bytes=_MOST_BYTES)
        own = content if isinstance(content, dict) else {"rank": self._rank}
        write_json(path, own | {"conflicts": conflict_rows(seen)})

    def _learn_of_control(self, rank: int, kind: ConflictKind, *, own: bool) -> None:
        """Note a rank's report; the first to lose control and the last to have it back are logged."""
        lost = kind is ConflictKind.CONTROL_LOST
        if own:
            self._reported_lost, self._reported_losses = lost, self._losses - (self._lost_now and not lost)
        before = bool(self._without)
        (self._without.add if lost else self._without.discard)(rank)
        self._record(rank, kind, aloud=before != bool(self._without))

    def _learn_of(self, rank: int, mask: int) -> None:
        fresh = mask & ~self._known.get(rank, 0)
        self._known[rank] = self._known.get(rank, 0) | mask
        for kind, bit in _BITS.items():
            if fresh & bit:
                self._record(rank, kind, aloud=not self._logged & bit)
                self._logged |= bit

    def _record(self, rank: int, kind: ConflictKind, *, aloud: bool) -> None:
        line = f"conflict on rank {rank}: {kind.text} ({kind.action.value})"
        facts = {"kind": kind.name.lower(), "rank": rank, "rule": kind.action.name.lower(), "text": kind.text}
        self._log.event("conflict", line if aloud else None, **facts)
