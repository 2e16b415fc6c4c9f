"""The frames between a job and the process that plans its iterations: numbers alone, of a fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.idle import columns_of
from perseus_ds.plan.playing.clock_requests import ClockRequest, RankClocks
from perseus_ds.plan.record import PlanSet
from perseus_ds.profile import Profile
from perseus_ds.schedule import Load


@dataclass(frozen=True, slots=True)
class Followed:
    """What the plan of one iteration, whose loads were known, asks of the ranks of a pipeline.

    ``time_s`` is what it takes as predicted. ``ends_s`` is when each of the first rank's computations is
    over, ``energy_j`` what the computations of a pipeline use beyond the power of waiting.

    Shape: ``clocks`` [ranks].
    """

    time_s: float
    energy_j: float
    ends_s: Sequence[float]
    clocks: tuple[RankClocks, ...]


Floats = NDArray[np.float64]
READY = 0
"""The number of the first answer, which no question has."""
_ROW = 5  # position, over, offset, clock, memory clock
_ASKED = 3  # number, stretch, on pace
_HEAD = 3  # number, found, time
_REQUESTS = 2  # for each computation: one within it, one behind it
_AROUND = 4  # more for each rank, where an iteration begins and ends


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What the process has to know of a job before its first question.

    ``marks`` are positions of the first rank's computations whose ends are asked for (-1: the begin).
    """

    plans: PlanSet
    profile: Profile
    objective: int
    change: ClockChange
    marks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuestionFrame:
    """What is asked: the loads of an iteration, and how many times longer than the objective's it may take.

    Shape: [3 + 2 x microbatches].
    """

    number: int
    stretch: float
    on_pace: bool
    loads: Sequence[Load]

    @staticmethod
    def numbers(microbatches: int) -> int:
        """How many numbers one has."""
        return _ASKED + 2 * microbatches

    def packed(self) -> Floats:
        """Write it down."""
        pairs = [(load.tokens, load.squares) for load in self.loads]
        return np.array([self.number, self.stretch, self.on_pace, *np.array(pairs).ravel()])

    @classmethod
    def of(cls, numbers: Floats) -> QuestionFrame:
        """Read it back."""
        number, stretch, on_pace, *pairs = numbers.tolist()
        return cls(int(number), stretch, bool(on_pace), tuple(map(Load, pairs[::2], pairs[1::2])))


class AnswerFrame:
    """Where everything stands in an answer: its number, whether there is one, its time, marks, clocks.

    Shape: [3 + marks + 3 x ranks + 5 x requests]; ``computations`` [ranks].
    """

    def __init__(self, plans: PlanSet, marks: Sequence[int]) -> None:
        ranks = plans.schedule.ranks
        self.microbatches = plans.schedule.microbatches
        self.computations = [len(columns) for columns in columns_of(plans.schedule)]
        self._marks = tuple(marks)
        self._ends = slice(_HEAD, _HEAD + len(self._marks))
        self._counts = slice(self._ends.stop, self._ends.stop + ranks)
        self._opening = slice(self._counts.stop, self._counts.stop + 2 * ranks)
        self._most = _REQUESTS * sum(self.computations) + _AROUND * ranks
        self.numbers = self._opening.stop + _ROW * self._most

    def none(self, number: int) -> Floats:
        """There is no plan."""
        numbers = np.zeros(self.numbers)
        numbers[0] = number
        return numbers

    def packed(self, number: int, followed: Followed) -> Floats:
        """Write a plan down; as none where it asks for more than there is room for."""
        numbers = self.none(number)
        rows = [
            (one.position, one.over, one.offset_s, one.clock_mhz, _or_nan(one.memory_mhz))
            for clocks in followed.clocks
            for one in clocks.requests
        ]
        if len(rows) > self._most:
            return numbers
        numbers[1:_HEAD] = 1.0, followed.time_s
        numbers[self._ends] = [0.0 if at < 0 else followed.ends_s[at] for at in self._marks]
        numbers[self._counts] = [len(clocks.requests) for clocks in followed.clocks]
        openings = [(clocks.opening[0], _or_nan(clocks.opening[1])) for clocks in followed.clocks]
        numbers[self._opening] = np.array(openings).ravel()
        if rows:
            numbers[self._opening.stop : self._opening.stop + _ROW * len(rows)] = np.array(rows).ravel()
        return numbers

    def time_s(self, numbers: Floats) -> float | None:
        """What the plan takes as predicted; None without a plan."""
        return float(numbers[2]) if numbers[1] else None

    def left_s(self, numbers: Floats) -> Floats:
        """What of it is left at each mark.

        Shape: [marks].
        """
        left_s: Floats = numbers[2] - numbers[self._ends]
        return left_s

    def of(self, numbers: Floats, rank: int) -> RankClocks:
        """Read one rank's part.

        Cost: linear in that rank's requests.
        """
        begin, end = list(pairwise([0, *np.cumsum(numbers[self._counts]).astype(int).tolist()]))[rank]
        first = self._opening.stop
        rows = numbers[first + _ROW * begin : first + _ROW * end].reshape(-1, _ROW).tolist()
        opening = numbers[self._opening][2 * rank : 2 * rank + 2].tolist()
        return RankClocks(
            (int(opening[0]), _or_none(opening[1])),
            tuple(
                ClockRequest(int(position), bool(over), offset_s, int(clock), _or_none(memory))
                for position, over, offset_s, clock, memory in rows
            ),
        )


def _or_nan(memory_mhz: int | None) -> float:
    return np.nan if memory_mhz is None else float(memory_mhz)


def _or_none(memory_mhz: float) -> int | None:
    return None if np.isnan(memory_mhz) else int(memory_mhz)
