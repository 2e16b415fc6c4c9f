"""Status of ranks in every iteration, with what they saw of others on their GPUs, and its vector."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_change import AskedClocks, is_capped
from perseus_ds.device.gpu import Capabilities, ConflictKind, Gpu, Sighting
from perseus_ds.errors import DeviceLostError, EngineError, PerseusError
from perseus_ds.files import read_json
from perseus_ds.run_directory.paths import TOUCH_EVERY_S, RunDirectory, touch, write_json
from perseus_ds.runtime.channel import FEWEST, MOST
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Sets
from perseus_ds.runtime.recorder import Arrivals, Iteration
from perseus_ds.straggler.controller import ReplicaStatus
from perseus_ds.straggler.notices import Notices

# Look into the run directory beside the training thread: a file system may be slow, or hang.

_PAUSE_S = 0.5
"""Between two looks. Each takes the interpreter from a training thread for some tenths of a millisecond."""


class NoticeWatch:
    """A thread of rank 0 that looks twice per second, and touches the lock of the run directory.

    ``announced`` is what held when it looked last: slowdowns, 1 where nothing is announced. A set
    of pipelines that meet in every layer is as slow as its slowest. ``power_w`` is what the job may take,
    ``complaints`` are for `report`.

    Shape: ``announced`` [replicas], the same as ``sets``.
    """

    def __init__(self, notices: Notices, log: EventLog, *, sets: Sets, directory: Path) -> None:
        self._notices = notices
        self._directory = directory
        self._log = log
        self._closing = threading.Event()
        self.complaints: list[str] = []
        self._sets = sets
        self.announced: NDArray[np.float64] = np.ones(len(sets))
        self.power_w: float | None = None
        self._thread = threading.Thread(target=self._watch, name="perseus-notices", daemon=True)
        self._thread.start()

    def report(self) -> None:
        """Report what is wrong with a notice, once; on the training thread, which owns the log."""
        while self.complaints:
            self._log.event("notice_ignored", self.complaints.pop(0))

    def close(self) -> None:
        """Stop looking; a file system that hangs is not waited for."""
        self._closing.set()
        self._thread.join(_PAUSE_S)

    def clear(self) -> None:
        """Remove all notices: they belong to a job that is over."""
        self._notices.clear()

    def _watch(self) -> None:
        touched_s = time.monotonic()
        while not self._closing.is_set():
            if time.monotonic() - touched_s >= TOUCH_EVERY_S:
                touch(self._directory)
                touched_s = time.monotonic()
            observed = self._notices.poll()
            self.announced = np.array([observed.slowdown[list(one)].max() for one in self._sets])
            self.power_w = observed.power_w
            self.complaints += observed.warnings
            self._closing.wait(_PAUSE_S)


# Others at work on our GPUs: seen by every rank on its own, logged once by rank 0, counted for each rank.

CONTROL = (ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK)

_MOST_BYTES = 32 << 20
_BITS = {kind: 1 << place for place, kind in enumerate(ConflictKind)}


def conflict_rows(sightings: Sequence[Sighting]) -> list[dict[str, object]]:
    """Report what was seen of others at work on one rank's GPU, a row for each kind."""
    return [{"kind": one.kind.name.lower(), "line": one.line, "count": one.count} for one in sightings]


class ConflictMonitor:
    """Ask the device once per iteration; what it saw travels with the rank's status, one rank's at a time.

    What to do about a conflict is the guard's decision (it puts the clock back itself); a session leaves when
    `check` hands it the reason. Each loss of control and each return is reported, in turns, however soon one
    follows the other. ``controlled``: clocks were ours from the check before to the last one, and none was
    overdue. ``uncontrolled_s`` is when they were last seen not to be (device time).
    """

    def __init__(self, gpu: Gpu, log: EventLog, *, rank: int, directory: RunDirectory) -> None:
        self._gpu = gpu
        self._log = log
        self._rank = rank
        self._directory = directory
        self._lost: tuple[Sighting, ...] = ()
        self._known: dict[int, int] = {}
        self._logged = self._spread = self.mask = 0
        self._in_control = True
        self._late = self._turns = self._reported = 0  # turns: losses and returns of control
        self._without: set[int] = set()
        self.controlled = True
        self.uncontrolled_s = -math.inf

    def check(self) -> PerseusError | None:
        """Note new conflicts; return why control was given up, if it was."""
        in_control, turns, late = self._gpu.in_control(), 0, 0
        for sighting in self._gpu.conflicts():
            if sighting.kind in CONTROL:
                turns += sighting.count
            else:
                self.mask |= _BITS[sighting.kind]
                late = sighting.count if sighting.kind is ConflictKind.NOT_STORED else late
        self.controlled = in_control and self._in_control and (turns, late) == (self._turns, self._late)
        if not self.controlled:
            self.uncontrolled_s = self._gpu.now_s()
        self._in_control, self._turns, self._late = in_control, turns, late
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
        return seen + tuple(one for one in self._lost if one.kind not in {other.kind for other in seen})

    def note_failure(self, error: PerseusError) -> None:
        """Note a lost device, and record this rank's conflicts while it can."""
        self.check()
        if isinstance(error, DeviceLostError):
            self._lost = (Sighting(ConflictKind.GPU_LOST, error.message, 1),)
            self.mask |= _BITS[ConflictKind.GPU_LOST]
        self._learn_of(self._rank, self.mask)

    def report(self) -> tuple[int, ...]:
        """Return for every kind 1 + this rank where it has a report that other ranks lack, else 0."""
        fresh = self.mask & ~self._spread
        if self._turns > self._reported:
            fresh |= _BITS[CONTROL[self._reported % len(CONTROL)]]
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
        """Write this rank's counts to its file, if there are any; a disk that hangs is not waited for."""
        path, seen = self._directory.rank(self._rank), self.sightings()

        def add() -> None:
            content: object = None
            with suppress(OSError, PerseusError):
                content = read_json(path, most_bytes=_MOST_BYTES)
            own = content if isinstance(content, dict) else {"rank": self._rank}
            write_json(path, own | {"conflicts": conflict_rows(seen)})

        if seen:
            self._log.write(path, add)

    def _learn_of_control(self, rank: int, kind: ConflictKind, *, own: bool) -> None:
        """Note a rank's report; the first to lose control and the last to have it back are logged."""
        lost, before = kind is ConflictKind.CONTROL_LOST, bool(self._without)
        self._reported += own
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


# The status of a rank, and of all: what every iteration exchanges.

_HEAD = 6
"""Failed, plans ready, duration, most, fewest microbatches (negative), power cap."""

_POWER_W = 5  # watts of the whole job (0: no cap), from rank 0 alone
_PARTING_S = 2.0
"""Time for which a rank that leaves waits for the others."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Status of all ranks in the iteration before.

    ``microbatches`` is the size of the batch that all of them ran, None where nobody reported it. ``sizes``
    are the smallest and the largest where they ran different ones.
    """

    failed: bool
    plans_ready: int
    iteration_s: float | None
    conflicts: Sequence[int] = ()
    replicas: ReplicaStatus | None = None
    microbatches: int | None = None
    sizes: tuple[int, int] | None = None
    power_w: float | None = None


class StatusLayout:
    """Layout of the vector, of which all ranks get the greatest of each place.

    The slowest of a replica's stages comes out by itself. So the vector grows with the number of replicas and
    not with that of ranks. Where more ranks than one have one kind of conflict to report, the last comes
    through first.

    Shape: 6 + kinds + 3 * replicas float64, and no place for replicas where there is one alone.
    """

    def __init__(self, *, replicas: int, replica: int) -> None:
        self.replicas = replicas if replicas > 1 else 0
        self._replica = replica
        first = _HEAD + len(_BITS)
        own, capped, announced, end = (first + row * self.replicas for row in range(4))
        self._rows = slice(own, capped), slice(capped, announced), slice(announced, end)
        self._blank = np.zeros(end)
        self._blank[[MOST, FEWEST]] = -np.inf
        if self.replicas:
            self._blank[self._rows[0]] = -np.inf

    def vector(
        self,
        *,
        failed: bool = False,
        plans_ready: int = 0,
        microbatches: int | None = None,
        duration_s: float | None = None,
        conflicts: Sequence[int] = (),
        own_s: float | None = None,
        capped: bool = False,
        announced: NDArray[np.float64] | None = None,
        power_w: float | None = None,
    ) -> NDArray[np.float64]:
        """Write down what this rank reports; unknown values are None.

        ``plans_ready`` is how many plans rank 0 has finished so far, ``microbatches`` the size of the batch
        that ran. ``own_s`` is how long the iteration took without the wait for other replicas (minus infinity
        where another rank reports for this replica). ``capped`` is whether its device was held down by a
        power or thermal cap meanwhile. ``conflicts`` is 1 + its rank for every kind of which it has something
        to report that nobody knows yet, else 0. Rank 0 alone knows slowdowns ``announced`` from outside, and
        what the job may take.
        """
        numbers = self._blank.copy()
        # an unknown duration is the longest, so that it stays unknown: NaN has no order
        numbers[0], numbers[1] = failed, plans_ready
        numbers[2] = math.inf if duration_s is None else duration_s
        if microbatches is not None:
            numbers[MOST], numbers[FEWEST] = microbatches, -microbatches
        numbers[_POWER_W] = power_w or 0.0
        if any(conflicts):
            numbers[_HEAD : _HEAD + len(conflicts)] = conflicts
        if self.replicas:
            own, caps, slowdowns = self._rows
            numbers[own.start + self._replica] = math.inf if own_s is None else own_s
            numbers[caps.start + self._replica] = capped
            if announced is not None:
                numbers[slowdowns] = announced
        return numbers

    def job_status(self, numbers: NDArray[np.float64]) -> JobStatus:
        """Read what came back."""
        head = numbers[: _HEAD + len(_BITS)].tolist()
        failed, plans_ready, duration_s, most, fewest, power_w, *conflicts = head
        replicas = None
        if self.replicas:
            own_s, capped, announced = self._rows
            replicas = ReplicaStatus(numbers[own_s], numbers[capped].astype(np.bool_), numbers[announced])
        return JobStatus(
            failed=bool(failed),
            plans_ready=int(plans_ready),
            iteration_s=duration_s if math.isfinite(duration_s) else None,
            microbatches=int(most) if most == -fewest else None,
            sizes=(int(-fewest), int(most)) if math.isfinite(most) and most != -fewest else None,
            conflicts=tuple(map(int, conflicts)) if any(conflicts) else (),
            replicas=replicas,
            power_w=power_w or None,
        )


class StatusExchange:
    """Gather this rank's report, spread what came back.

    ``notices`` are watched by rank 0 alone, which informs the others, so that all know of them at the same
    iteration.
    """

    def __init__(
        self,
        context: JobContext,
        *,
        arrivals: Arrivals,
        watch: EnergyWatch,
        asked: AskedClocks,
        conflict_monitor: ConflictMonitor,
        notices: NoticeWatch | None,
    ) -> None:
        job = context.job
        replicas = job.replicas if context.config.straggler.enabled else 1
        self._layout = StatusLayout(replicas=replicas, replica=job.replica)
        self._context, self._channel = context, context.channel
        self._arrivals, self._watch, self._asked = arrivals, watch, asked
        self._conflict_monitor, self._notices = conflict_monitor, notices

    def turn(
        self,
        index: int,
        passed: Sequence[Iteration],
        *,
        plans_ready: int,
        microbatches: int,
    ) -> JobStatus | None:
        """Collect the iteration before, and report this one; None where nothing was reported yet.

        Raises:
            SilentRankError: some rank did not report anything in time.
        """
        job_status = self._collect()
        last = passed[-1] if passed else None
        capped, own_s, announced, power_w = False, None, None, None
        if self._layout.replicas:
            own_s = self._arrivals.own_s(index - self._arrivals.behind, passed)
            if last is not None:
                looks = self._watch.looks_between(last.start_s, last.end_s)
                settle_s = 2.0 * self._context.capabilities.switch_latency_s
                capped = is_capped(looks, self._asked, settle_s=settle_s)
        if self._notices is not None:
            if self._notices.complaints:
                self._notices.report()
            announced, power_w = self._notices.announced, self._notices.power_w
        lasted = last is not None and not last.skipped and last.end_s > last.start_s
        numbers = self._layout.vector(
            plans_ready=plans_ready,
            microbatches=microbatches,
            duration_s=last.duration_s if last is not None and lasted else None,
            conflicts=self._conflict_monitor.report(),
            own_s=own_s,
            capped=capped,
            announced=announced,
            power_w=power_w,
        )
        self._channel.post(numbers)
        return job_status

    def someone_failed(self) -> bool:
        """Return whether another rank's failure ended an exchange; silence is no failure."""
        try:
            job_status = self._collect(patience_s=_PARTING_S)
        except EngineError:
            return False
        return job_status is not None and job_status.failed

    def fail(self) -> None:
        """Inform the others that this rank is leaving, if they can be reached."""
        try:
            self._channel.collect(patience_s=_PARTING_S)
            self._channel.post(self._layout.vector(failed=True, conflicts=self._conflict_monitor.report()))
        except PerseusError:
            return  # silence is understood as well: the others' next wait is bounded

    def _collect(self, **patience: float) -> JobStatus | None:
        collected = self._channel.collect(**patience)
        if collected is None:
            return None
        job_status = self._layout.job_status(collected)
        if job_status.conflicts:
            self._conflict_monitor.learn(job_status.conflicts)
        return job_status

    def close(self, *, well: bool) -> None:
        """End what is under way. Notices do not outlive a job that ended well; a restarted one finds them."""
        self._channel.close()
        if well and self._notices is not None:
            self._notices.clear()
