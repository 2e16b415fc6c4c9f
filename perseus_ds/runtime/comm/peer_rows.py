"""Two numbers of every group of peers in the exchange: who is the latest, and how late the next one is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler.peers import Claims

_RANKS = 2**20
_STEP = 1e-6
_MOST = 100.0


class PeerRows:
    """The end of the vector of which all ranks get the greatest: a lateness with a rank's number below it.

    ``group`` is this rank's, None where it meets nobody within computations. ``suspect`` names the rank that
    a group stands aside for: the others then report in the second row how late they are.

    Shape: 2 * groups float64.
    """

    def __init__(self, *, groups: int, group: int | None, rank: int) -> None:
        self._groups = groups
        self._group = group
        self._rank = rank
        self.suspect: Callable[[int], int | None] = lambda _: None

    def __len__(self) -> int:
        return 2 * self._groups

    def write(self, numbers: NDArray[np.float64], late: float | None) -> None:
        """Claim how late this rank is; nothing where it does not know."""
        numbers[:] = -np.inf
        if self._group is None or late is None:
            return
        numbers[self._group] = round(min(late, _MOST) / _STEP) * _RANKS + self._rank
        if self.suspect(self._group) != self._rank:
            numbers[self._groups + self._group] = late

    def claims(self, numbers: NDArray[np.float64]) -> Claims:
        """Read what came back."""
        latest, next_late = numbers[: self._groups], numbers[self._groups :]
        known = np.where(np.isfinite(latest), latest, 0.0).astype(np.int64)
        late = np.where(np.isfinite(latest), (known // _RANKS) * _STEP, -math.inf)
        return Claims(late, known % _RANKS, next_late)
