"""Computations that change their clock while they run: to which option, after how much work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Portion(NamedTuple):
    """A share of a computation's work, done at one of its options."""

    option: int
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """All split computations of a PlanSet, column by column and there plan by plan.

    A computation does ``share`` of its work at the option that ``PlanSet.choice`` names, then the rest at
    ``option``. Time and energy are linear in the share, so a split lies on the hull of the options.

    Shape: four vectors of one length.
    """

    plan: NDArray[np.int32]
    column: NDArray[np.int32]
    option: NDArray[np.uint16]
    share: NDArray[np.float64]

    @classmethod
    def none(cls) -> Splits:
        """Whole computations only."""
        empty = np.zeros(0, np.int32)
        return cls(empty, empty, np.zeros(0, np.uint16), np.zeros(0))

    @classmethod
    def of(
        cls,
        choice: NDArray[np.uint8] | NDArray[np.uint16],
        rest: NDArray[np.uint8] | NDArray[np.uint16],
        share: NDArray[np.float64],
    ) -> Splits:
        """Gather what is split from full matrices.

        Shape: [plans, computations] all three.
        """
        column, plan = np.nonzero(((share < 1.0) & (choice != rest)).T)
        return cls(
            plan.astype(np.int32),
            column.astype(np.int32),
            rest[plan, column].astype(np.uint16),
            share[plan, column],
        )

    def __len__(self) -> int:
        return len(self.plan)

    def of_column(self, column: int) -> slice:
        """Where one computation's splits stand.

        Cost: logarithmic in splits: what is looked for is of the column's own type, or all would be copied.
        """
        ends = np.array((column, column + 1), dtype=self.column.dtype)
        return slice(*np.searchsorted(self.column, ends).tolist())

    def of_plan(self, plan: int) -> dict[int, tuple[int, float]]:
        """Option of the rest and share before it, by column."""
        rows = np.flatnonzero(self.plan == plan)
        pairs = zip(self.option[rows].tolist(), self.share[rows].tolist(), strict=True)
        return dict(zip(self.column[rows].tolist(), pairs, strict=True))
