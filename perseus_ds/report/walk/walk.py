"""The optimiser's walk along the frontier, from T* to T_min: a few plans, played, packed for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import PlanSet
from perseus_ds.report.timeline.lanes import lane_name
from perseus_ds.schedule import Instruction, dag_of

_MOST_BOXES = 130_000
_MOST_FRAMES = 32
_LEAST_FRAMES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Frames of one schedule: the slowest plan first, all clocks at maximum last.

    Shape: ``lane_names`` [lanes]; ``lane``, ``backward`` [boxes]; ``start_s``, ``duration_s``,
    ``power_w`` [frames, boxes]; ``time_s``, ``energy_j`` [frames].
    """

    lane_names: tuple[str, ...]
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
    def lanes(self) -> int:
        """How many ranks are shown."""
        return len(self.lane_names)

    @property
    def frames(self) -> int:
        """How many plans are shown."""
        return len(self.time_s)


def walk_of(plans: PlanSet) -> Walk:
    """Play plans at even steps of iteration time: as many as stay small enough to send along."""
    boxes = plans.computations()
    frames = max(_LEAST_FRAMES, min(_MOST_FRAMES, _MOST_BOXES // max(1, len(boxes))))
    times_s = np.linspace(plans.iteration_time_s[-1], plans.iteration_time_s[0], frames)
    chosen = list(dict.fromkeys(int(np.abs(plans.iteration_time_s - t).argmin()) for t in times_s))
    start_s, duration_s, energy_j = _played(plans, boxes, chosen)
    rank_of = plans.schedule.rank_of_stages()
    baseline = plans.baseline
    return Walk(
        lane_names=tuple(lane_name(*one) for one in enumerate(plans.schedule.stages_of_ranks)),
        lane=np.array([rank_of[one.stage] for one in boxes], dtype=np.uint8),
        backward=np.array([one.kind.value != "F" for one in boxes], dtype=np.uint8),
        start_s=start_s,
        duration_s=duration_s,
        power_w=np.divide(energy_j, duration_s, out=np.zeros_like(energy_j), where=duration_s > 0.0),
        time_s=np.array([*plans.iteration_time_s[chosen], baseline.iteration_time_s]),
        energy_j=np.array([*plans.energy_j[chosen], baseline.energy_j]),
        blocking_power_w=plans.blocking_power_w,
        names=(*(f"plan {index} of {len(plans)}" for index in chosen), "all clocks at maximum"),
    )


def _played(
    plans: PlanSet, boxes: Sequence[Instruction], chosen: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Start, duration and energy of every computation in the chosen plans and, last, at the highest clocks.

    Shape: [frames, boxes] all three.
    """
    dag = dag_of(plans.schedule)
    place = {node: index for index, node in enumerate(dag.nodes)}
    time_s = np.array([[plans.fixed_s.get((node.stage, node.kind), 0.0)] for node in dag.nodes])
    time_s = np.repeat(time_s, len(chosen) + 1, axis=1)
    energy_j = np.zeros_like(time_s)
    for column, box in enumerate(boxes):
        options = plans.options[box.stage, box.kind]
        for table, values in ((time_s, options.time_s), (energy_j, options.energy_j)):
            table[place[box], :-1] = plans.blended(column, values)[chosen]
            table[place[box], -1] = values[0]
    start_s = dag.starts_of_many(time_s, plans.fixed_s)
    rows = [place[box] for box in boxes]
    return start_s[rows].T, time_s[rows].T, energy_j[rows].T
