"""The clocks of one group's sweep: those measured, and the one that is measured now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perseus_ds.profile.record import Computation, Point

_LOWEST_SHARE = 0.5


def candidate_clocks(grid_mhz: Sequence[int], count: int) -> tuple[int, ...]:
    """Spread clocks evenly from the highest to half of it, on clocks that the device has."""
    grid = sorted(set(grid_mhz), reverse=True)
    useful = [clock for clock in grid if clock >= _LOWEST_SHARE * grid[0]]
    count = min(count, len(useful))
    if count == 1:
        return (useful[0],)
    span = len(useful) - 1
    return tuple(useful[round(index * span / (count - 1))] for index in range(count))


@dataclass(slots=True)
class Sweep:
    """Measure one clock after another; ``clocks_mhz`` grows while others are chosen (`profile.next_clock`).

    Its last one is measured now, unless the sweep is finished: then all were.
    """

    clocks_mhz: tuple[int, ...]
    points: dict[Computation, list[Point]] = field(default_factory=dict)
    done: int = 0
    refused_mhz: frozenset[int] = frozenset()

    @property
    def clock_mhz(self) -> int:
        """The clock to measure now."""
        return self.clocks_mhz[self.done]

    @property
    def finished(self) -> bool:
        """Whether every clock was measured that is known so far."""
        return self.done >= len(self.clocks_mhz)

    def record(self, measured: Mapping[Computation, Point]) -> None:
        """Take the points of the present clock."""
        for computation, point in measured.items():
            self.points.setdefault(computation, []).append(point)
        self.done += 1

    def refuse(self) -> None:
        """Leave the present clock out: a driver does not take it."""
        clock_mhz = self.clock_mhz
        self.clocks_mhz = tuple(one for one in self.clocks_mhz if one != clock_mhz)
        self.refused_mhz |= {clock_mhz}

    def go_on(self, clock_mhz: int) -> None:
        """Measure another clock."""
        self.clocks_mhz = (*self.clocks_mhz, clock_mhz)

    def slower(self, clock_mhz: int) -> float:
        """By how many times an iteration lasts longer at a clock than at the highest, at most.

        Work slows down at most as its clock does. How it slowed down so far bounds it better.
        """
        if clock_mhz in self.clocks_mhz[: self.done]:
            at = self.clocks_mhz.index(clock_mhz)
            return max((own[at].time_s / own[0].time_s for own in self._whole), default=1.0)
        shares = [
            (own[at].time_s / own[0].time_s - 1.0) / (self.clocks_mhz[0] / clock - 1.0)
            for at, clock in enumerate(self.clocks_mhz[: self.done])
            if clock < self.clocks_mhz[0]
            for own in self._whole
        ]
        follows = min(max(shares, default=1.0), 1.0)
        return 1.0 + max(follows, 0.0) * (self.clocks_mhz[0] / clock_mhz - 1.0)

    @property
    def _whole(self) -> list[list[Point]]:
        """Curves of what ran at every clock."""
        return [own for own in self.points.values() if len(own) == self.done]
