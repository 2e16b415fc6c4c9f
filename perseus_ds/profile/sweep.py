"""Which clock to measure next, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perseus_ds.device.conflict import is_held
from perseus_ds.profile.record import Computation, Point

DEFAULT_CLOCKS = 12
_LOWEST_SHARE = 0.5
_PATIENCE = 2


def candidate_clocks(grid_mhz: Sequence[int], max_clocks: int | None) -> tuple[int, ...]:
    """Spread the sweep evenly from the highest clock to half of it, on clocks that the device has.

    Below half of the highest clock, time grows faster than power falls on every part in ``facts``; the
    sweep usually stops long before.
    """
    grid = sorted(set(grid_mhz), reverse=True)
    useful = [clock for clock in grid if clock >= _LOWEST_SHARE * grid[0]]
    count = min(max_clocks or DEFAULT_CLOCKS, len(useful))
    if count == 1:
        return (useful[0],)
    span = len(useful) - 1
    return tuple(useful[round(index * span / (count - 1))] for index in range(count))


@dataclass(slots=True)
class Sweep:
    """Walk down the candidate clocks; stop when lower clocks cost time and save no effective energy.

    One that never ``stops`` walks through all of them. A clock that a power cap kept down shows nothing of
    lower ones. It cost what the clock before it did, give or take the noise.

    Source: arXiv 2312.06902, section 5: from the highest clock down, until both get worse.
    """

    clocks_mhz: tuple[int, ...]
    stops: bool = True
    points: dict[Computation, list[Point]] = field(default_factory=dict)
    _effective_j: dict[Computation, list[float]] = field(default_factory=dict)
    _next: int = 0

    @property
    def clock_mhz(self) -> int:
        """The clock to measure now."""
        return self.clocks_mhz[self._next]

    @property
    def done(self) -> int:
        """How many clocks have been measured."""
        return self._next

    @property
    def finished(self) -> bool:
        """Whether every clock was measured, or lower ones stopped paying."""
        return self._next >= len(self.clocks_mhz) or (self.stops and self._past_the_best())

    def record(self, measured: Mapping[Computation, Point], *, blocking_power_w: float) -> None:
        """Take the points of the present clock and go on to the next."""
        held = self._next == 0 or all(
            point.achieved_mhz is None or is_held(point.clock_mhz, point.achieved_mhz)
            for point in measured.values()
        )
        for computation, point in measured.items():
            self.points.setdefault(computation, []).append(point)
            if held:
                effective_j = point.energy_j - blocking_power_w * point.time_s
                self._effective_j.setdefault(computation, []).append(effective_j)
        self._next += 1

    def _past_the_best(self) -> bool:
        """Whether no computation gained effective energy from the last clocks that were held."""
        return self._next > _PATIENCE and all(
            len(energy_j) > _PATIENCE and min(energy_j[:-_PATIENCE]) < min(energy_j[-_PATIENCE:])
            for energy_j in self._effective_j.values()
        )
