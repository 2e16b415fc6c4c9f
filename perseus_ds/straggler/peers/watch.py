"""Which GPU of a group all its peers wait for: the same answer on every rank, from the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

LEAST_LATENESS = 0.01
"""How much longer than before a GPU has to compute to be looked at."""

APART = 0.6
"""Share of its lateness by which it has to stand out from the next one."""

PROOFS = 4
"""Iterations in a row that have to show it."""

MOST_PROOFS = 32
"""The same for a group whose straggler has come and gone."""

GONE = 2
"""Iterations in a row after which it counts as recovered."""

SILENCE = 16
"""Iterations without a word of it after which nobody runs slower for it any more."""

LEAST_ROOM = 0.01
"""What running slower has to leave room for to pay."""

LEAST_MARGIN = 0.002
"""What those who wait stay below it in any case."""

MARGIN_SDS = 2.2
"""And how many standard deviations of a computation: the slowest of several noisy ones is slower than one."""


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """Who of each group is later than all others (``rank``), by how much (``late``), and the next one.

    Minus infinity is silence. ``next_late`` is of those whom `PeerWatch.suspect` did not name.

    Shape: vectors [groups].
    """

    late: NDArray[np.float64]
    rank: NDArray[np.int64]
    next_late: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PeerStraggler:
    """A GPU that its peers wait for in every layer: ``late`` 0.05 is 5 %, ``room`` what they may take longer.

    ``proofs`` is how many iterations in a row showed it.
    """

    rank: int
    late: float
    room: float
    proofs: int = PROOFS


@dataclass(slots=True)
class _Group:
    suspect: int | None = None
    seen: list[float] = field(default_factory=list)
    found: PeerStraggler | None = None
    misses: int = 0
    silent: int = 0
    proofs: int = PROOFS


class PeerWatch:
    """Judge every group by the claims of its ranks, iteration by iteration.

    One claim proves nothing: four in a row have to name the same rank, each clearly later than the next one.
    While its peers run slower for it, it alone claims. After two claims far below what it was answered for,
    all run at full speed again. A group that comes and goes has to be proved twice as long every time.

    Shape: ``scatter`` [groups], how much a computation varies, relatively.
    """

    def __init__(self, scatter: Sequence[float]) -> None:
        self._margins = [max(LEAST_MARGIN, MARGIN_SDS * one) for one in scatter]
        self._groups = [_Group() for _ in scatter]
        self._busy = np.zeros(len(self._groups), dtype=np.bool_)

    def suspect(self, group: int) -> int | None:
        """The rank that claimed last to be the latest: all others report how late the next one is."""
        return self._groups[group].suspect

    def found(self, group: int) -> PeerStraggler | None:
        """Whom the group waits for; None while that is not proved."""
        return self._groups[group].found

    def observe(self, claims: Claims) -> list[int]:
        """Take in one iteration; return the groups in which something is new.

        Cost: vectors over groups; a step for each in which somebody is late.
        """
        busy = (claims.late >= LEAST_LATENESS) | self._busy
        return [int(at) for at in busy.nonzero()[0] if self._judged(int(at), claims)]

    def _judged(self, at: int, claims: Claims) -> bool:
        group, rank, late = self._groups[at], int(claims.rank[at]), float(claims.late[at])
        if group.found is not None:
            return self._kept(at, group.found, rank, late)
        if late == -math.inf:
            return False
        stands_out = late >= LEAST_LATENESS and late - float(claims.next_late[at]) >= APART * late
        if rank != group.suspect or not stands_out:
            group.suspect = rank
            self._begin_anew(at)
            return False
        group.seen.append(late)
        self._busy[at] = True
        if len(group.seen) < group.proofs:
            return False
        late = median(group.seen[-PROOFS:])
        room = late - self._margins[at]
        group.found = PeerStraggler(rank, late, room if room >= LEAST_ROOM else 0.0, group.proofs)
        group.misses = group.silent = 0
        return True

    def _begin_anew(self, at: int) -> None:
        self._groups[at].seen.clear()
        self._busy[at] = False

    def _kept(self, at: int, found: PeerStraggler, rank: int, late: float) -> bool:
        group = self._groups[at]
        group.silent = group.silent + 1 if late == -math.inf else 0
        if not group.silent:
            gone = rank != found.rank or late < APART * found.late
            group.misses = group.misses + 1 if gone else 0
        if group.misses < GONE and group.silent < SILENCE:
            return False
        group.found, group.suspect = None, None
        self._begin_anew(at)
        group.proofs = min(2 * group.proofs, MOST_PROOFS)
        return True
