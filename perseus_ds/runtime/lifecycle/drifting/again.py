"""Which clocks are measured again, and the walk over them: each rank that moved has clocks of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.plan import FrequencyPlan
from perseus_ds.profile import Computation, Point
from perseus_ds.runtime.measure.pooling import Pooled

MOST_CLOCKS = 4


def clocks_again(plan: FrequencyPlan, pipeline_rank: int) -> tuple[int, ...]:
    """The highest clock of a pipeline rank, and those that its plan uses most: what it runs at anyway.

    At these no iteration lasts longer than planned, so that measuring again costs no time.
    """
    plans, portions = plan.of, plan.portions()
    uses: dict[int, float] = {}
    tops = []
    for _, one in plans.computations_of(pipeline_rank):
        options = plans.options[one.stage, one.kind]
        tops.append(int(options.clock_mhz[0]))
        for option, share in portions[one]:
            for segment in options.segments(option):
                clock_mhz = segment.clock_mhz
                uses[clock_mhz] = uses.get(clock_mhz, 0.0) + share * segment.duration_s
    top = max(tops)
    most = sorted((clock for clock in uses if clock != top), key=lambda clock: (-uses[clock], clock))
    return (top, *sorted(most[: MOST_CLOCKS - 1], reverse=True))


class Again:
    """One window after another; every rank goes through its own clocks, and stays at the highest when done.

    All ranks keep the clocks of all, by (group, pipeline rank), and the points of those that moved.
    """

    def __init__(
        self,
        clocks_mhz: Mapping[tuple[int, int], Sequence[int]],
        computations: Mapping[tuple[int, int], Sequence[Computation]],
        *,
        mine: tuple[int, int],
    ) -> None:
        self._clocks_mhz = clocks_mhz
        self._computations = computations
        self._mine = clocks_mhz.get(mine)
        self.measures = self._mine is not None
        self.points: list[dict[Computation, list[Point]]] = []
        self.windows: list[Sequence[Pooled]] = []
        self.done = 0
        self.failed = ""

    @property
    def clock_mhz(self) -> int:
        """The clock that this rank measures now; 0 where it measures nothing."""
        if self._mine is None:
            return 0
        return self._mine[self.done] if self.done < len(self._mine) else self._mine[0]

    @property
    def total(self) -> int:
        """How many windows there are."""
        return max(map(len, self._clocks_mhz.values()))

    @property
    def slower(self) -> float:
        """At clocks that a plan uses anyway no iteration lasts longer."""
        return 1.0

    @property
    def finished(self) -> bool:
        """Whether every rank is through, or nothing could be measured."""
        return self.done >= self.total or bool(self.failed)

    def record(self, seen: Sequence[Pooled]) -> None:
        """Take one window of every group.

        Shape: ``seen`` [groups].
        """
        if not self.points:
            self.points = [{} for _ in seen]
        for place, clocks_mhz in self._clocks_mhz.items():
            if self.done < len(clocks_mhz):
                for key in self._computations[place]:
                    if (point := seen[place[0]].points.get(key)) is not None:
                        self.points[place[0]].setdefault(key, []).append(point)
        self.windows.append(seen)
        self.done += 1
