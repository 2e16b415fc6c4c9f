"""Recorder of instructions, iteration by iteration, with two marks per instruction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import EngineError, ScheduleError
from perseus_ds.profile import Interval
from perseus_ds.profile.records import Computation
from perseus_ds.run_directory.events import NOTHING_MEASURED
from perseus_ds.runtime.job import Job
from perseus_ds.schedule import Instruction, Kind, Load, Order, match_instructions

# When instructions ran, without ever waiting for the device: marks now, seconds later.

Mark = object
"""A point of the stream; only the stopwatch that took it knows more."""


Moment = Callable[[], float]
"""Sleep until the device is at a point of the stream; return when that was, by the device's `Gpu.now_s`.

Infinite where the point was lost: taken while a graph was captured, or on a device that was reset.
"""


class Stopwatch:
    """Marks are taken on the training thread and turned into seconds when the device has passed them.

    This one is for devices that run when the host calls: the mark is the time. ``behind`` is how many
    iterations the device may be behind the host.
    """

    behind = 0

    def __init__(self, gpu: Gpu) -> None:
        self._now_s = gpu.now_s

    def mark(self) -> Mark:
        """Note this point of the stream.

        Cost: a few microseconds; no synchronisation.
        """
        return self._now_s()

    def begin(self) -> Mark:
        """Note where an iteration begins."""
        return self.mark()

    def end(self) -> Mark:
        """Note where an iteration ends: what `has_passed` and `wait` take."""
        return self.mark()

    def host_s(self) -> float:
        """Read the host's clock, on the time base of `seconds`."""
        return self._now_s()

    def moment(self) -> Moment | None:
        """Note the point of the last mark, to be waited for; None where the host is the device."""
        return None

    def has_passed(self, mark: Mark) -> bool:
        """Return whether the device has reached an iteration's end."""
        del mark
        return True

    def wait(self, mark: Mark) -> None:
        """Block until the device has reached an iteration's end; for those an iteration old."""

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Times of marks that were passed, on the device's time base; not a number where one was lost."""
        return cast("list[float]", list(marks))

    def whole(self, first: Mark, last: Mark) -> bool:
        """Return whether what lies between two begins or ends of iterations can be believed."""
        del first, last
        return True

    @property
    def captures(self) -> int:
        """Number of graphs of the device's work captured so far."""
        return 0

    def enter_thread(self) -> None:
        """Begin a thread that waits for moments: the first call that it makes."""

    def trouble(self) -> str:
        """Report once why marks are lost; empty where none are, or after that."""
        return ""

    def close(self) -> None:
        """Take no more marks; safe to call twice."""


_MANY = 100
_MOST_OTHERS = 5
"""Iterations in a row that run something else than the order has (a microbatch was skipped), or within which
something else runs: fewer are left out, so many are how this job runs."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """A training iteration of one rank, from its first instruction to its last, on the device's time base.

    ``own_s`` is what we ourselves did before it and counts as its own. ``outside_s`` is what the host did
    there (a checkpoint, an evaluation, sampling), None where that is not known. One that is ``resumed``
    follows something else that ran on the engine: clocks change within it.

    One that is ``void`` shows nothing (a mark was lost, a graph captured, the device's clock stepped, a
    microbatch skipped): it has no intervals, and only counts. One that is ``skipped`` ended without an
    optimizer step, since gradients overflowed: it is shorter than others.

    ``microbatches`` is the size of its batch, ``size`` how much its forwards worked on, in tokens, 0 where
    nobody counts them.
    """

    index: int
    start_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    own_s: float = 0.0
    outside_s: float | None = None
    resumed: bool = False
    microbatches: int = 0
    size: float = 0.0
    void: bool = False
    skipped: bool = False

    @property
    def duration_s(self) -> float:
        """From the first instruction to the last, and what we did for it."""
        return self.end_s - self.start_s + self.own_s


@dataclass(slots=True)
class _Marks:
    """``last`` is where the iteration before ended, ``ours_s`` when our work after it did, for the host."""

    begin: Mark
    last: Mark | None
    ours_s: float | None
    resumed: bool
    order: Order = ()
    left_out: frozenset[Instruction] = frozenset()
    microbatches: int = 0
    settling_s: float = 0.0
    interrupted: bool = False
    skipped: bool = False
    kinds: list[Kind] = field(default_factory=list)
    batch: Sequence[Load] | None = None
    loads: list[Load | None] = field(default_factory=list)
    starts: list[Mark] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)


class Recorder:
    """Take marks while the engine runs; hand out whole iterations once the device has passed them.

    ``order`` is what this rank runs in an iteration, unless its begin names another: it gives observed
    instructions their names. If the order contains a step that no hook observed, the gap between two
    iterations is recorded as that step. Iterations then begin where the last one ended. ``skipped_steps``
    counts the optimizer steps that were skipped. Where instructions are ``adjoining`` the end of one is the
    start of the next, by one mark. In ``replayed`` iterations none is expected.

    ``index`` is that of the iteration that runs, or comes next. ``interrupted``: something else has run on
    the engine since the last iteration. ``ours_s`` is to be set to `host_s` when our work after an iteration
    ends: from there on it is the host's own time. ``troubled``: `trouble` may have something to report.
    """

    def __init__(
        self,
        stopwatch: Stopwatch,
        order: Order = (),
        *,
        skipped_steps: Callable[[], int] = lambda: 0,
        adjoining: bool = False,
        replayed: bool = False,
    ) -> None:
        self._stopwatch = stopwatch
        self._job: Job | None = None
        self._order, self._left_out, self._microbatches = order, frozenset[Instruction](), 0
        self._named: tuple[Order, list[Kind], tuple[Instruction, ...]] = ((), [], ())
        self._mark, self.host_s = stopwatch.mark, stopwatch.host_s
        self._marks: _Marks | None = None
        self._waiting: list[tuple[int, Mark, _Marks]] = []
        self._last_end: Mark | None = None
        self.ours_s: float | None = None
        self._was_interrupted = False
        self.interrupted, self.troubled = True, False
        self.index = 0
        self._skipped_steps, self._replayed = skipped_steps, replayed
        self._adjoining = adjoining and stopwatch.behind > 0  # where the host is the device marks are free
        self._skipped = skipped_steps()
        self._resolved_s = 0.0
        self._voids = 0
        self._others = 0
        self._torn: int | None = 0  # in a row; None once it was reported
        self._tears = False

    def begin(
        self, job: Job | None = None, *, settling_s: float = 0.0, loads: Sequence[Load] | None = None
    ) -> None:
        """Start a new iteration, of the job in batches of one size where there are several.

        ``loads`` are those of its microbatches, where they are known by now.

        What begins within ``settling_s`` runs at clocks that are not in force yet: it does not count for a
        clock. Where something else runs before every iteration (a second model, an evaluation each time),
        that is how this job runs. From the second in a row on they count like others.
        """
        resumed = self.interrupted and not self._was_interrupted
        self._was_interrupted = self.interrupted and self.index > 0
        if job is not None and job is not self._job:
            self._job, self._order, self._left_out = job, job.order, job.left_out
            self._microbatches = job.schedule.microbatches
        self._marks = _Marks(
            self._stopwatch.begin(),
            self._last_end,
            self.ours_s,
            resumed,
            self._order,
            self._left_out,
            self._microbatches,
            settling_s,
            interrupted=self.interrupted,
            batch=loads,
        )
        self.interrupted = False

    def mark_start(self, kind: Kind, load: Load | None = None) -> None:
        """An instruction is about to be issued."""
        marks = self._marks
        if marks is not None:
            marks.kinds.append(kind)
            marks.loads.append(load)
            shares = self._adjoining and 0 < len(marks.starts) == len(marks.ends)
            marks.starts.append(marks.ends[-1] if shares else self._mark())

    def mark_end(self) -> None:
        """The instruction was issued."""
        if self._marks is not None:
            self._marks.ends.append(self._mark())

    def interrupt(self) -> None:
        """Something else runs on the engine now: clocks change within the iteration that follows."""
        self._tears |= self._marks is not None and bool(self._marks.kinds)
        self.interrupted, self._marks = True, None

    def finish(self) -> int:
        """The iteration is over on the host; return its index. One that was not begun here is empty.

        Raises:
            EngineError: no instruction was observed since graphs are captured.
        """
        end = self._stopwatch.end()
        unseen = self._marks is not None and bool(self._marks.order) and not self._marks.kinds
        if unseen and self._stopwatch.captures and not self._replayed:
            raise EngineError(
                "an iteration is replayed from one CUDA graph: none of its instructions can be separated",
                hint="capture layers or modules, not the whole iteration",
            )
        if self._torn is not None:
            self._torn = self._torn + 1 if self._tears else 0
            self.troubled |= self._torn == _MOST_OTHERS
        self._tears = False
        marks = self._marks or _Marks(end, None, None, resumed=True, interrupted=True)
        skipped, self._skipped = self._skipped, self._skipped_steps()
        marks.skipped = skipped != self._skipped
        self._waiting.append((self.index, end, marks))
        self._last_end, self.ours_s, self._marks = end, None, None
        self.index += 1
        return self.index - 1

    def trouble(self) -> str:
        """Report once what keeps iterations from being measured; empty where nothing does, or after that."""
        self.troubled = False
        if self._voids == _MANY:
            self._voids += 1
            return f"{NOTHING_MEASURED}: in each of {_MANY} a CUDA graph was captured"
        if self._torn == _MOST_OTHERS:
            self._torn = None
            return (
                f"{NOTHING_MEASURED}: within each something runs that does not train (an evaluation, or a "
                "forward under no_grad between two microbatches)"
            )
        return self._stopwatch.trouble()

    def take_passed(self) -> list[Iteration]:
        """Iterations that the device has finished since the last call, oldest first.

        One more than one iteration behind is waited for, so that every rank has seen iteration n when
        iteration n + 1 ends.
        """
        done: list[Iteration] = []
        while self._waiting:
            index, end, marks = self._waiting[0]
            if not self._stopwatch.has_passed(end):
                if len(self._waiting) == 1:
                    break
                self._stopwatch.wait(end)
            del self._waiting[0]
            done.append(self._resolve(index, end, marks))
        return done

    def _resolve(self, index: int, end: Mark, marks: _Marks) -> Iteration:
        """Bring marks that were passed to seconds, and put what was between to the iteration.

        The time since the iteration before is divided into ours and the host's, or is an unseen step. The
        device may still have been at work when the host was through with ours: that was no time of ours.
        """
        whole, seconds = self._stopwatch.whole, self._stopwatch.seconds
        begin_s, end_s = seconds([marks.begin, end])
        intervals = self._intervals(begin_s, marks)
        if intervals is None or not whole(marks.begin, end):
            self._voids += int(self._voids <= _MANY)
            self.troubled = True
            at_s, microbatches = self._resolved_s, marks.microbatches
            return Iteration(
                index, at_s, at_s, (), resumed=marks.resumed, microbatches=microbatches, void=True
            )
        self._voids, self._resolved_s = 0, end_s
        start_s, own_s = begin_s, 0.0
        outside_s: float | None = None
        if marks.last is not None and marks.ours_s is not None and whole(marks.last, marks.begin):
            [last_s] = seconds([marks.last])
            if self._step is not None and Kind.STEP not in marks.kinds and not marks.interrupted:
                start_s, outside_s = last_s, 0.0
                intervals.insert(0, Interval(self._step, last_s, begin_s))
            else:
                ours_s = min(max(marks.ours_s, last_s), begin_s)
                own_s, outside_s = ours_s - last_s, begin_s - ours_s
        forwards = (one.load for one in intervals if one.instruction.kind.runs_forward)
        return Iteration(
            index,
            start_s,
            end_s,
            tuple(intervals),
            own_s=own_s,
            outside_s=outside_s,
            resumed=marks.resumed,
            microbatches=marks.microbatches,
            size=sum(load.tokens for load in forwards if load is not None),
            skipped=marks.skipped,
        )

    def _intervals(self, begin_s: float, marks: _Marks) -> list[Interval] | None:
        """Name and date what was observed; None where a mark was lost, or something else ran.

        Names are those of the iteration before if it ran the same.

        Raises:
            ScheduleError: something else ran again and again.
        """
        starts_s, ends_s = self._stopwatch.seconds(marks.starts), self._stopwatch.seconds(marks.ends)
        if not (all(map(math.isfinite, starts_s)) and all(map(math.isfinite, ends_s))):
            return None
        order, kinds = marks.order, marks.kinds
        if order is not self._named[0] or kinds != self._named[1]:
            try:
                self._named = order, kinds, match_instructions(order, kinds) if kinds else ()
            except ScheduleError:
                self._others += 1
                if self._others == _MOST_OTHERS:
                    raise
                return None
            self._step = next((one for one in reversed(order) if one.kind is Kind.STEP), None)
        self._others = 0
        names, settled_s = self._named[2], begin_s + marks.settling_s
        intervals: list[Interval] = []
        loads = loads_of(names, marks.loads, marks.batch)
        for name, start_s, stop_s, load in zip(names, starts_s, ends_s, loads, strict=True):
            waits = name in marks.left_out or start_s < settled_s
            intervals.append(Interval(name, start_s, stop_s, load, waits))
        return intervals


def loads_of(
    names: Sequence[Instruction], told: Sequence[Load | None], batch: Sequence[Load] | None = None
) -> list[Load | None]:
    """Give all that is done to a microbatch one load: the batch's own, else that of its forward.

    Shape: ``told`` and the result [instructions]; ``batch`` [microbatches].
    """
    if batch is None and not any(told):
        return [None] * len(names)
    forwards: dict[tuple[int, int], Load | None] = {}
    loads: list[Load | None] = []
    for name, load in zip(names, told, strict=True):
        if name.kind.runs_forward:
            forwards[name.stage, name.microbatch] = load
    for name in names:
        if not name.kind.is_computation:
            loads.append(None)
        elif batch is not None and name.microbatch < len(batch):
            loads.append(batch[name.microbatch])
        else:
            loads.append(forwards.get((name.stage, name.microbatch)))
    return loads


# When this rank arrived at the replicas' meeting point: its iterations without the wait for the others.


class Arrivals:
    """Durations from release to arrival, on the device's time base; the clocks of hosts have no part.

    Replicas wait for each other in ReduceGrads alone, each stage with its peers. With tied weights the first
    and last stage of one replica meet in ReduceTiedGrads before, which is no wait for another replica. With
    ZeRO-1 the parameters are gathered in OptimizerStep, when all have just been released.

    The first rank reports for its replica. It holds the first stage, begins without waiting for anybody, and
    its last backward comes after all that any rank does, the slowest included. The others arrive earlier, by
    the time that the pipeline takes to drain: beside a slow replica, that drains slowly they would seem late.

    ``behind`` is how many iterations the device may be behind the host: all ranks report the same one.
    """

    def __init__(self, order: Order, *, pipeline_rank: int, behind: int) -> None:
        self.behind = behind
        self._pipeline_rank = pipeline_rank
        self._reductions = [(i.stage, i.kind) for i in order if i.kind is Kind.REDUCE_GRADS]
        self._reduction_s = 0.0
        self._own_s: dict[int, float] = {}

    def expect(self, fixed_s: Mapping[Computation, float]) -> None:
        """Know how long the reduction itself takes when nobody has to wait: it counts as this rank's own."""
        self._reduction_s = sum(fixed_s.get(reduction, 0.0) for reduction in self._reductions)

    def own_s(self, index: int, passed: Sequence[Iteration]) -> float | None:
        """Take in iterations that the device has finished, and return the own time of iteration ``index``.

        None where it is unknown: clocks changed in it, or its step was skipped. On a rank that does not
        report it is less than any time.
        """
        if self._pipeline_rank > 0:
            return -math.inf
        for iteration in passed:
            if iteration.resumed or iteration.void or iteration.skipped:
                continue
            reductions = (i for i in iteration.intervals if i.instruction.kind is Kind.REDUCE_GRADS)
            reducing_s = sum(one.end_s - one.start_s for one in reductions)
            waited_s = max(0.0, reducing_s - self._reduction_s)
            self._own_s[iteration.index] = iteration.duration_s - waited_s
        found = self._own_s.pop(index, None)
        self._own_s = {later: own_s for later, own_s in self._own_s.items() if later > index}
        return found
