"""The optimiser's walk along the frontier, from T* to T_min: a few plans, played, packed for drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.plan.play import Played, play, play_baseline

_MOST_BOXES = 130_000
_MOST_FRAMES = 32
_LEAST_FRAMES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Frames of one schedule: the slowest plan first, all clocks at maximum last.

    Shape: ``lane``, ``backward`` [boxes]; ``start_s``, ``duration_s``, ``power_w`` [frames, boxes];
    ``time_s``, ``energy_j`` [frames].
    """

    lanes: int
    lane: NDArray[np.uint8]
    backward: NDArray[np.uint8]
    start_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    blocking_power_w: float
    names: tuple[str, ...]

    @property
    def frames(self) -> int:
        """How many plans are shown."""
        return len(self.time_s)


def walk_of(plans: PlanSet) -> Walk:
    """Play plans at even steps of iteration time: as many as stay small enough to send along."""
    boxes = len(plans.computations())
    frames = max(_LEAST_FRAMES, min(_MOST_FRAMES, _MOST_BOXES // max(1, boxes)))
    times_s = np.linspace(plans.iteration_time_s[-1], plans.iteration_time_s[0], frames)
    chosen = list(dict.fromkeys(int(np.abs(plans.iteration_time_s - t).argmin()) for t in times_s))
    played = [_computed(play(plans.plan(index))) for index in chosen] + [_computed(play_baseline(plans))]
    rank_of = plans.schedule.rank_of_stages()
    first = played[0]
    baseline = plans.baseline
    return Walk(
        lanes=plans.schedule.ranks,
        lane=np.array([rank_of[one.instruction.stage] for one in first], dtype=np.uint8),
        backward=np.array([one.instruction.kind.value != "F" for one in first], dtype=np.uint8),
        start_s=np.array([[one.start_s for one in frame] for frame in played]),
        duration_s=np.array([[one.duration_s for one in frame] for frame in played]),
        power_w=np.array([[one.energy_j / one.duration_s for one in frame] for frame in played]),
        time_s=np.array([*plans.iteration_time_s[chosen], baseline.iteration_time_s]),
        energy_j=np.array([*plans.energy_j[chosen], baseline.energy_j]),
        blocking_power_w=plans.blocking_power_w,
        names=(*(f"plan {index} of {len(plans)}" for index in chosen), "all clocks at maximum"),
    )


def _computed(played: list[Played]) -> list[Played]:
    return [one for one in played if one.instruction.kind.is_computation and one.duration_s > 0.0]
