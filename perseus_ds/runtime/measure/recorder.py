"""What ran when, iteration by iteration, with two marks per instruction."""

from __future__ import annotations

from dataclasses import dataclass, field

from perseus_ds.profile import Interval
from perseus_ds.runtime.measure.stopwatch import Mark, Stopwatch
from perseus_ds.schedule import Instruction, Kind, Order, heard


@dataclass(frozen=True, slots=True)
class Iteration:
    """One training iteration of one rank, from its first instruction to its last, on the device's time base.

    ``own_s`` is what we ourselves did before it and counts as its own; ``outside_s`` what the host did there
    (a checkpoint, an evaluation, sampling), None where that is not known. One that is ``resumed`` follows
    something else that ran on the engine: clocks change within it.
    """

    index: int
    start_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    own_s: float = 0.0
    outside_s: float | None = None
    resumed: bool = False

    @property
    def duration_s(self) -> float:
        """From the first instruction to the last, and what we did for it."""
        return self.end_s - self.start_s + self.own_s


@dataclass(slots=True)
class _Marks:
    """``last`` is where the iteration before ended, ``ours`` where our work after it did."""

    begin: Mark
    last: Mark | None
    ours: Mark | None
    resumed: bool
    kinds: list[Kind] = field(default_factory=list)
    starts: list[Mark] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)


class Recorder:
    """Take marks while the engine runs; hand out whole iterations once the device has passed them.

    ``order`` is what this rank runs in an iteration: it gives what was heard its names. A step that stands
    in it and was not heard is what lies between two iterations, which then begin where the last one ended.
    """

    def __init__(self, stopwatch: Stopwatch, order: Order = ()) -> None:
        self._stopwatch = stopwatch
        self._order = order
        self._step = next((instruction for instruction in order if instruction.kind is Kind.STEP), None)
        self._named: tuple[list[Kind], tuple[Instruction, ...]] = ([], ())
        self._mark = stopwatch.mark
        self._marks: _Marks | None = None
        self._waiting: list[tuple[int, Mark, _Marks]] = []
        self._last_end: Mark | None = None
        self._ours: Mark | None = None
        self._interrupted = True
        self._finished = 0

    def begin(self) -> None:
        """Start a new iteration."""
        self._marks = _Marks(self._mark(), self._last_end, self._ours, self._interrupted)
        self._interrupted = False

    def started(self, kind: Kind) -> None:
        """An instruction is about to be issued."""
        if self._marks is not None:
            self._marks.kinds.append(kind)
            self._marks.starts.append(self._mark())

    def ended(self) -> None:
        """The instruction was issued."""
        if self._marks is not None:
            self._marks.ends.append(self._mark())

    def interrupt(self) -> None:
        """Something else runs on the engine now: clocks change within the iteration that follows."""
        self._interrupted, self._marks = True, None

    def finish(self) -> int:
        """The iteration is over on the host; return its index. One that was not begun here is empty."""
        end = self._mark()
        marks = self._marks or _Marks(end, None, None, resumed=True)
        self._waiting.append((self._finished, end, marks))
        self._last_end, self._ours, self._marks = end, None, None
        self._finished += 1
        return self._finished - 1

    def rest(self) -> None:
        """What we had to do after an iteration is done: from here on it is the host's own time."""
        self._ours = self._mark()

    def passed(self) -> list[Iteration]:
        """Iterations that the device has finished since the last call, oldest first.

        One more than one iteration behind is waited for, so that every rank has seen iteration n when
        iteration n + 1 ends.
        """
        done: list[Iteration] = []
        while self._waiting and (len(self._waiting) > 1 or self._stopwatch.passed(self._waiting[0][1])):
            self._stopwatch.wait(self._waiting[0][1])
            done.append(self._resolve(*self._waiting.pop(0)))
        return done

    def _resolve(self, index: int, end: Mark, marks: _Marks) -> Iteration:
        seconds = self._stopwatch.seconds
        names = self._names(marks.kinds)
        rows = zip(names, seconds(marks.starts), seconds(marks.ends), strict=True)
        heard_s = tuple(Interval(name, begin_s, end_s) for name, begin_s, end_s in rows)
        begin_s, end_s = seconds([marks.begin, end])
        if marks.last is None or marks.ours is None:
            return Iteration(index, begin_s, end_s, heard_s, resumed=marks.resumed)
        last_s, ours_s = seconds([marks.last, marks.ours])
        if self._step is not None and Kind.STEP not in marks.kinds and not marks.resumed:
            between = Interval(self._step, last_s, begin_s)
            return Iteration(index, last_s, end_s, (between, *heard_s), outside_s=0.0)
        return Iteration(
            index, begin_s, end_s, heard_s, ours_s - last_s, begin_s - ours_s, resumed=marks.resumed
        )

    def _names(self, kinds: list[Kind]) -> tuple[Instruction, ...]:
        """Name what was heard, as in the iteration before if it was the same."""
        if kinds != self._named[0]:
            self._named = kinds, heard(self._order, kinds) if kinds else ()
        return self._named[1]
