"""Where within an iteration replicas report to each other how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

AT = (0.25, 0.5, 0.75)
"""Shares of an iteration after which progress is reported, about."""


@dataclass(frozen=True, slots=True)
class ProgressMarks:
    """Computations of the first stage after which its replica reports how far it is; the first is the begin.

    ``after`` are their positions in the rank's running order (-1: before any), ``share`` what of an iteration
    is over then. ``answered`` is what is over when the next computation is as well: an answer is in force by
    then.

    Shape: vectors [marks].
    """

    after: tuple[int, ...]
    share: tuple[float, ...]
    answered: tuple[float, ...]

    @classmethod
    def of(cls, ends_s: Sequence[float], total_s: float, at: Sequence[float] = AT) -> ProgressMarks:
        """Choose among the ends of the first rank's computations; as many as there are different ones.

        Shape: ``ends_s`` [computations].
        """
        over: NDArray[np.float64] = np.append(0.0, np.asarray(ends_s) / total_s)
        within = np.flatnonzero(over[:-1] < 1.0)
        places = sorted({0, *(int(within[np.abs(over[within] - share).argmin()]) for share in at)})
        return cls(
            tuple(place - 1 for place in places),
            tuple(float(over[place]) for place in places),
            tuple(min(1.0, float(over[place + 1])) for place in places),
        )

    def first(self) -> ProgressMarks:
        """The begin alone: where nothing is known within an iteration."""
        return ProgressMarks(self.after[:1], self.share[:1], self.answered[:1])

    def until(self, mark: int) -> float:
        """What of what is left at a mark is over when the next one has been answered; 1 after the last."""
        if mark + 1 >= len(self.share):
            return 1.0
        return (self.answered[mark + 1] - self.share[mark]) / (1.0 - self.share[mark])

    def left(self, mark: int) -> float:
        """What of an iteration is left at a mark."""
        return 1.0 - self.share[mark]
