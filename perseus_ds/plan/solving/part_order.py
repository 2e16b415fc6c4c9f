"""Which part of a split computation comes first: the order that changes the clock least often."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.int64]


def slow_first(ranks: Sequence[Sequence[int]], fast_mhz: Matrix, slow_mhz: Matrix) -> NDArray[np.bool_]:
    """Say where the slower part should come first; elsewhere the order makes no difference or is the other.

    Each rank's computations are passed once, both orders of each kept with the fewest changes up to it.

    Shape: ``ranks`` columns of each rank in running order; the others [plans, computations], also returned.
    Cost: linear in plans times computations.
    """
    turned = np.zeros(fast_mhz.shape, dtype=np.bool_)
    for columns in ranks:
        _order_rank(columns, fast_mhz, slow_mhz, turned)
    return turned


def _order_rank(columns: Sequence[int], fast: Matrix, slow: Matrix, turned: NDArray[np.bool_]) -> None:
    """Two ways through every computation: 0 begins fast and ends slow, 1 the other way round."""
    plans = np.arange(len(fast))
    changes = np.zeros((2, len(fast)), np.int64)
    came: list[NDArray[np.int64]] = []
    for place, column in enumerate(columns):
        begins = np.array([fast[:, column], slow[:, column]])
        if place:
            before = columns[place - 1]
            ended = np.array([slow[:, before], fast[:, before]])
            paths = changes[None] + (begins[:, None] != ended[None])
            came.append(paths.argmin(axis=1))
            changes = paths.min(axis=1)
        else:
            came.append(np.zeros_like(changes))
    way = changes.argmin(axis=0)
    for place in range(len(columns) - 1, -1, -1):
        turned[:, columns[place]] = way == 1
        way = came[place][way, plans]
