"""The reports and answers at the marks of one iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.pacing.outlook import Outlook

_Replicas = NDArray[np.float64]


@dataclass(slots=True)
class PacedIteration:
    """One iteration of all replicas; ``pace`` is how many times longer than predicted each takes.

    ``awaited`` is the same, as far as others wait for it; ``most_s`` how long the iteration may be made.

    ``stretch`` is how many times longer than at the objective's plan the plans take that were chosen at each
    mark.

    Shape: ``pace``, ``awaited`` [replicas]; ``told`` and ``stretch`` are lists [marks], of vectors
    [replicas].
    """

    pace: _Replicas
    told: list[Outlook] = field(default_factory=list)
    stretch: list[_Replicas] = field(default_factory=list)
    most_s: float = math.inf
    awaited: _Replicas = field(init=False)

    def __post_init__(self) -> None:
        self.awaited = self.pace

    @property
    def passed_s(self) -> _Replicas:
        """What was over at the last reported mark, as predicted at the plans that ran, without the pace."""
        passed_s = np.zeros(len(self.pace))
        for here, then, slower in zip(self.told, self.told[1:], self.stretch, strict=False):
            passed_s += (here.left_s - then.left_s) * slower
        return passed_s

    @property
    def planned_s(self) -> _Replicas:
        """What the whole iteration takes as predicted at the plans that were run, without the pace."""
        planned_s: _Replicas = self.passed_s + self.told[-1].left_s * self.stretch[-1]
        return planned_s

    def measured_left_s(self, own_s: _Replicas) -> list[_Replicas]:
        """What was left at each mark at the objective's plan, as measured.

        Shape: ``own_s`` [replicas]; a list [marks] of the same.
        """
        ends_s = [*(one.elapsed_s for one in self.told[1:]), own_s]
        left_s: list[_Replicas] = []
        following_s = np.zeros(len(own_s))
        for mark in range(len(self.told) - 1, -1, -1):
            following_s = following_s + (ends_s[mark] - self.told[mark].elapsed_s) / self.stretch[mark]
            left_s.insert(0, following_s)
        return left_s
