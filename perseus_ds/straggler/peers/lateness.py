"""How much longer one GPU itself computes than before, shown by its energy: waits lie inside marks."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

REFERENCE = 6
"""Iterations that a rank compares with: the first that it ran at some clocks."""

_FOLLOWS = 1.0 / 16.0  # of an iteration in which nobody is late: temperatures drift
_ON_TIME = 0.005
_LEAST_WAITING, _MOST_WAITING = 0.05, 0.8  # of the power of computing: else the profile saw nobody wait
_WAITING = 0.25
"""Power of waiting by that of computing, where ranks never waited while they were profiled.

Source: 83.64 W of some 350 W (A100), 70.38 W of some 280 W (A40), arXiv 2312.06902 and its artifact.
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """One iteration of one rank: how long it lasted and computed (s), its energy (J), whether it was capped.

    ``computing_s`` contains the waits for peers. ``capped``: the clock stayed below the one asked for.
    """

    lasts_s: float
    computing_s: float
    energy_j: float
    capped: bool = False


@dataclass(slots=True)
class _PeerReference:
    first: deque[Ran] = field(default_factory=lambda: deque(maxlen=REFERENCE))
    usual: Ran | None = None


class PeerLateness:
    """Compare iterations with the first ones that ran at the same clocks (``key``).

    Where a group of ranks meets in every layer all compute as long as the slowest. A GPU that waits burns the
    power of waiting meanwhile, the one that they wait for that of computing. What an iteration takes more in
    energy than its longer wait explains is that GPU's own doing. A GPU that is held below its clock takes
    less energy; there the clock is the proof.
    """

    def __init__(self) -> None:
        self._blocking_w = 0.0
        self._references: dict[Hashable, _PeerReference] = {}

    def expect(self, blocking_w: float) -> None:
        """Know what this GPU draws while it waits."""
        if blocking_w != self._blocking_w:
            self._blocking_w = blocking_w
            self._references.clear()

    def of(self, ran: Ran, key: Hashable) -> float | None:
        """Return by how much longer, relatively, this rank's GPU itself computes; None: that is not known.

        No more than all peers together are late: what only costs energy makes nobody wait.
        """
        reference = self._references.setdefault(key, _PeerReference())
        if reference.usual is None:
            reference.first.append(ran)
            if len(reference.first) == REFERENCE:
                reference.usual = _median(reference.first)
            return None
        usual = reference.usual
        late = ran.computing_s / usual.computing_s - 1.0
        if late < _ON_TIME:
            reference.usual = _towards(usual, ran)
            return 0.0
        if ran.capped and not usual.capped:
            return late
        computing_w, waiting_w = usual.energy_j / usual.lasts_s, self._blocking_w
        if not _LEAST_WAITING <= waiting_w / computing_w <= _MOST_WAITING:
            waiting_w = _WAITING * computing_w
        computing_w = (usual.energy_j - waiting_w * (usual.lasts_s - usual.computing_s)) / usual.computing_s
        unexplained_j = ran.energy_j - usual.energy_j - waiting_w * (ran.lasts_s - usual.lasts_s)
        own = unexplained_j / (computing_w - waiting_w) / usual.computing_s
        return min(max(0.0, own), late)


def _median(several: deque[Ran]) -> Ran:
    return Ran(
        median(one.lasts_s for one in several),
        median(one.computing_s for one in several),
        median(one.energy_j for one in several),
        sum(one.capped for one in several) > len(several) // 2,
    )


def _towards(usual: Ran, ran: Ran) -> Ran:
    def nearer(here: float, there: float) -> float:
        return here + _FOLLOWS * (there - here)

    return Ran(
        nearer(usual.lasts_s, ran.lasts_s),
        nearer(usual.computing_s, ran.computing_s),
        nearer(usual.energy_j, ran.energy_j),
        usual.capped,
    )
