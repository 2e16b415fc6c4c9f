"""What ran when, iteration by iteration, with two marks per instruction."""

from __future__ import annotations

from dataclasses import dataclass, field

from perseus_ds.profile import Interval
from perseus_ds.runtime.measure.stopwatch import Mark, Stopwatch
from perseus_ds.schedule import Instruction, Kind, Order, heard


@dataclass(frozen=True, slots=True)
class Iteration:
    """One training iteration of one rank, on the device's time base.

    ``start_s`` is the end of the one before, so that iterations tile the time; None where something else
    (an evaluation, a checkpoint, the first iteration's set-up) came between.
    """

    index: int
    start_s: float | None
    end_s: float
    intervals: tuple[Interval, ...]

    @property
    def duration_s(self) -> float | None:
        """From the end of the last iteration to the end of this one."""
        return None if self.start_s is None else self.end_s - self.start_s


@dataclass(slots=True)
class _Marks:
    kinds: list[Kind] = field(default_factory=list)
    starts: list[Mark] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)
    begin: Mark | None = None


class Recorder:
    """Take marks while the engine runs; hand out whole iterations once the device has passed them.

    ``order`` is what this rank runs in an iteration: it gives what was heard its names. A step that stands
    in it and was not heard is what lies between two iterations.
    """

    def __init__(self, stopwatch: Stopwatch, order: Order = ()) -> None:
        self._stopwatch = stopwatch
        self._order = order
        self._step = next((instruction for instruction in order if instruction.kind is Kind.STEP), None)
        self._named: tuple[list[Kind], tuple[Instruction, ...]] = ([], ())
        self._mark = stopwatch.mark
        self._marks = _Marks()
        self._waiting: list[tuple[int, Mark | None, Mark, _Marks]] = []
        self._last_end: Mark | None = None
        self._finished = 0

    def begin(self) -> None:
        """Start a new iteration."""
        self._marks = _Marks()
        if self._step is not None and self._last_end is not None:
            self._marks.begin = self._mark()

    def started(self, kind: Kind) -> None:
        """An instruction is about to be issued."""
        self._marks.kinds.append(kind)
        self._marks.starts.append(self._mark())

    def ended(self) -> None:
        """The instruction was issued."""
        self._marks.ends.append(self._mark())

    def interrupt(self) -> None:
        """Something that is not training came between: the next iteration has no beginning."""
        self._last_end = None
        self._marks = _Marks()

    def finish(self) -> int:
        """The iteration is over on the host; return its index."""
        end = self._mark()
        self._waiting.append((self._finished, self._last_end, end, self._marks))
        self._last_end = end
        self._finished += 1
        return self._finished - 1

    def passed(self) -> list[Iteration]:
        """Iterations that the device has finished since the last call, oldest first.

        One more than one iteration behind is waited for, so that every rank has seen iteration n when
        iteration n + 1 ends.
        """
        done: list[Iteration] = []
        while self._waiting and (len(self._waiting) > 1 or self._stopwatch.passed(self._waiting[0][2])):
            self._stopwatch.wait(self._waiting[0][2])
            done.append(self._resolve(*self._waiting.pop(0)))
        return done

    def _resolve(self, index: int, start: Mark | None, end: Mark, marks: _Marks) -> Iteration:
        seconds = self._stopwatch.seconds
        names = self._names(marks.kinds)
        rows = zip(names, seconds(marks.starts), seconds(marks.ends), strict=True)
        start_s = None if start is None else seconds([start])[0]
        heard_s = [Interval(name, begin_s, end_s) for name, begin_s, end_s in rows]
        return Iteration(
            index=index,
            start_s=start_s,
            end_s=seconds([end])[0],
            intervals=(*self._between(start_s, marks), *heard_s),
        )

    def _between(self, start_s: float | None, marks: _Marks) -> list[Interval]:
        """The step, where no instruction marks it: from the end of one iteration to the next one's begin."""
        if self._step is None or start_s is None or marks.begin is None or Kind.STEP in marks.kinds:
            return []
        return [Interval(self._step, start_s, self._stopwatch.seconds([marks.begin])[0])]

    def _names(self, kinds: list[Kind]) -> tuple[Instruction, ...]:
        """Name what was heard, as in the iteration before if it was the same."""
        if kinds != self._named[0]:
            self._named = kinds, heard(self._order, kinds) if kinds else ()
        return self._named[1]
