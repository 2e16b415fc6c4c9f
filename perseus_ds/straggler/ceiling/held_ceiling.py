"""Which plans hold the ceiling that stands: found alike on all ranks, iteration by iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.straggler.frontier_index import FrontierIndex


@dataclass(frozen=True, slots=True)
class CapNumbers:
    """What all ranks know of a ceiling; ``of_job`` where it is on all pipelines together."""

    power_cap_w: float
    ramp_w_per_s: float = 0.0
    of_job: bool = False


@dataclass(frozen=True, slots=True)
class CeilingCost:
    """The plans that hold a ceiling, the power that they take, and by how much they are slower."""

    plans: tuple[int, ...]
    power_w: float
    slowdown_pct: float


class HeldCeiling:
    """Move every replica to the fastest plan under the ceiling, as fast as its ramp allows.

    ``indexes`` are the frontiers so restricted: no plan of theirs is faster than what holds the ceiling. So a
    replica that waits for a straggler runs the slower of both. Power is the mean of an iteration at a plan's
    own time; ``level_w`` is what may be taken now, None where nothing limits it. On the way back the last
    ramp holds.

    Shape: ``indexes`` and ``pipelines`` [replicas]; ``pipelines`` is how many each replica stands for.
    """

    def __init__(self, indexes: Sequence[FrontierIndex], pipelines: Sequence[int] = ()) -> None:
        self._free = tuple(indexes)
        self._pipelines = tuple(pipelines) or (1,) * len(self._free)
        self._plans = tuple(index.objective for index in self._free)
        self.indexes: Sequence[FrontierIndex] = self._free
        self.numbers: CapNumbers | None = None
        self.level_w: float | None = None

    @property
    def binds(self) -> bool:
        """Whether some replica is slower than without a ceiling."""
        return self.indexes is not self._free

    @property
    def forbids_default(self) -> bool:
        """Whether default clocks would take more than the ceiling."""
        return self.level_w is not None and self.default_w > self.level_w

    @property
    def plans(self) -> tuple[int, ...]:
        """What every replica runs where nobody waits.

        Shape: [replicas].
        """
        return self._plans

    @property
    def free_s(self) -> float:
        """What an iteration is predicted to last without a ceiling."""
        return max(index.objective_s for index in self._free)

    @property
    def default_w(self) -> float:
        """What default clocks take: the pipeline that takes most, or the job."""
        return self._taken_w([index.default_w for index in self._free])

    @property
    def free_w(self) -> float:
        """The same at the objective's plans."""
        return self._taken_w([index.power_w[index.objective] for index in self._free])

    @property
    def least_w(self) -> float:
        """The same at the slowest plans."""
        return self._taken_w([index.power_w[index.slowest] for index in self._free])

    def cost(self, level_w: float) -> CeilingCost:
        """Return what it costs to hold a ceiling."""
        plans = self._plans_within(level_w)
        lasts_s = max(float(index.expected_s[plan]) for index, plan in zip(self._free, plans, strict=True))
        taken_w = self._taken_w(_powers_w(self._free, plans))
        return CeilingCost(plans, taken_w, 100.0 * (lasts_s / self.free_s - 1.0))

    def observe(self, numbers: CapNumbers | None, lasted_s: float | None) -> bool:
        """Take the ceiling that stands after an iteration; return whether some replica changes its plan.

        ``lasted_s`` is how long the iteration lasted (None: as planned), by which a ramp moves on.

        Cost: nothing while no ceiling stands; a search in each frontier where its level moves.
        """
        if numbers is None and self.level_w is None:
            return False
        if numbers is not None:
            other_unit = self.numbers is not None and self.numbers.of_job != numbers.of_job
            self.numbers = numbers
            if other_unit:
                self.level_w = self._taken_w(_powers_w(self._free, self._plans))
        self.level_w = self._next_level_w(numbers is not None, lasted_s)
        before, self._plans = self._plans, self._plans_within(self.level_w)
        if self.level_w is None:
            self.numbers = None
        if self._plans != before:
            self._restrict()
        return self._plans != before

    def _next_level_w(self, stands: bool, lasted_s: float | None) -> float | None:  # noqa: FBT001
        assert self.numbers is not None
        target_w = self.numbers.power_cap_w if stands else math.inf
        if not self.numbers.ramp_w_per_s:
            return target_w if stands else None
        step_w = self.numbers.ramp_w_per_s * (lasted_s or max(index.objective_s for index in self.indexes))
        level_w = self.free_w if self.level_w is None else self.level_w
        level_w = max(target_w, level_w - step_w) if target_w < level_w else min(target_w, level_w + step_w)
        return level_w if stands or level_w < self.free_w else None

    def _taken_w(self, each_w: Sequence[float]) -> float:
        """Of all pipelines together, or of the one that takes most."""
        if self.numbers is not None and self.numbers.of_job:
            return float(sum(w * count for w, count in zip(each_w, self._pipelines, strict=True)))
        return float(max(each_w))

    def _plans_within(self, level_w: float | None) -> tuple[int, ...]:
        if level_w is None:
            return tuple(index.objective for index in self._free)
        if self.numbers is None or not self.numbers.of_job:
            return tuple(index.under(level_w) for index in self._free)
        times_s = sorted({time_s for index in set(self._free) for time_s in index.times_s})
        low, high = 0, len(times_s) - 1
        while low < high:  # the shortest common time at which all pipelines together hold it
            middle = (low + high) // 2
            together_w = self._taken_w([index.waiting_w(times_s[middle]) for index in self._free])
            low, high = (low, middle) if together_w <= level_w else (middle + 1, high)
        return tuple(index.not_before(times_s[low]) for index in self._free)

    def _restrict(self) -> None:
        made: dict[tuple[int, int], FrontierIndex] = {}
        for index, plan in zip(self._free, self._plans, strict=True):
            if (id(index), plan) not in made:
                made[id(index), plan] = index.no_faster_than(plan)
        restricted = [made[id(index), plan] for index, plan in zip(self._free, self._plans, strict=True)]
        unchanged = all(one is other for one, other in zip(restricted, self._free, strict=True))
        self.indexes = self._free if unchanged else restricted


def _powers_w(indexes: Sequence[FrontierIndex], plans: Sequence[int]) -> list[float]:
    return [float(index.power_w[plan]) for index, plan in zip(indexes, plans, strict=True)]
