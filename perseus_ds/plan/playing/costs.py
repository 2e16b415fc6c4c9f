"""What a plan asks of clocks and of the site: changes per second, energy in waits, the swing of power."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.playing.clock_requests import clock_requests
from perseus_ds.plan.playing.play import Played, play, play_baseline
from perseus_ds.plan.record import FrequencyPlan


@dataclass(frozen=True, slots=True)
class Power:
    """Power of one pipeline over an iteration: mean, and how far it swings.

    Units: watts, all GPUs together.
    """

    mean_w: float
    least_w: float
    peak_w: float


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """Figures of one plan beside all clocks at maximum.

    ``changes`` are those of the GPU that changes most often, in one iteration; ``waiting_j`` is the energy of
    all waits of a pipeline.
    """

    changes: int
    changes_per_s: float
    splits: int
    waiting_j: float
    waiting_before_j: float
    power: Power
    power_before: Power


def costs_of(plan: FrequencyPlan) -> PlanCosts:
    """Run the plan and its baseline, and add up.

    Cost: a pass over the schedule's graph for each rank.
    """
    plans, after, before = plan.of, play(plan), play_baseline(plan.of)
    every = range(plans.schedule.ranks)
    changes = max(len(clock_requests(plan, rank, plans.change, played=after)) for rank in every)
    high_w, ranks = plans.baseline.blocking_power_w, plans.schedule.ranks
    before_s = plans.baseline.iteration_time_s
    return PlanCosts(
        changes=changes,
        changes_per_s=changes / plan.iteration_time_s,
        splits=sum(len(one.parts) > 1 for one in after),
        waiting_j=max(0.0, plan.energy_j - sum(one.energy_j for one in after)),
        waiting_before_j=max(0.0, plans.baseline.energy_j - sum(one.energy_j for one in before)),
        power=_power(after, _lowered(plan, after), plan.iteration_time_s, ranks * high_w, high_w),
        power_before=_power(before, [], before_s, ranks * high_w, high_w),
    )


def _lowered(plan: FrequencyPlan, played: Sequence[Played]) -> list[tuple[float, float, float]]:
    """Beginning, end and change of power of every wait at the low clock, cut where the iteration ends."""
    clock, total_s = plan.of.wait_clock, plan.iteration_time_s
    if clock is None:
        return []
    computed = {one.instruction: one for one in played if one.parts}
    spans = []
    for rank in range(plan.of.schedule.ranks):
        own = [computed[instruction] for _, instruction in plan.of.computations_of(rank)]
        times_s = np.array([one.start_s for one in own]), np.array([one.end_s for one in own])
        for idle in plan.low_waits(rank):
            idle_s, until_s = (float(moment) for moment in idle.span_s(*times_s, np.array(total_s)))
            low_s, begin_s = float(clock.low_s(np.array(until_s - idle_s))), idle_s + clock.down_s
            for shift_s in (0.0, total_s):
                left_s, right_s = max(begin_s - shift_s, 0.0), min(begin_s + low_s - shift_s, total_s)
                if right_s > left_s:
                    spans.append((left_s, right_s, clock.power_w - clock.high_power_w))
    return spans


def _power(
    played: Sequence[Played],
    lowered: Sequence[tuple[float, float, float]],
    total_s: float,
    waiting_w: float,
    each_w: float,
) -> Power:
    """Sum the power of all ranks piece by piece."""
    lasts_s, level_w = _levels(played, lowered, total_s, waiting_w, each_w)
    real = lasts_s > 1e-9 * total_s
    mean_w = float((level_w * lasts_s).sum() / total_s)
    return Power(mean_w, float(level_w[real].min()), float(level_w[real].max()))


def _levels(
    played: Sequence[Played],
    lowered: Sequence[tuple[float, float, float]],
    total_s: float,
    waiting_w: float,
    each_w: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How long the pipeline has each power, and that power.

    Shape: [pieces] each.
    """
    steps = [(start_s, add_w) for start_s, _, add_w in lowered]
    steps += [(end_s, -add_w) for _, end_s, add_w in lowered]
    for one in played:
        at_s = one.start_s
        for part in one.parts:
            if part.duration_s > 0.0:
                add_w = part.energy_j / part.duration_s - each_w
                steps += [(at_s, add_w), (at_s + part.duration_s, -add_w)]
            at_s += part.duration_s
    steps.sort()
    moments_s = np.array([0.0, *(when for when, _ in steps), total_s])
    return np.diff(moments_s), waiting_w + np.cumsum([0.0, *(add for _, add in steps)])


def swing_w(plan: FrequencyPlan, within_s: float = 1.0) -> float:
    """Return the largest change of one pipeline's power within some seconds, iteration after iteration.

    Cost: a pass over the schedule's graph, and one over its pieces.
    """
    played, plans, total_s = play(plan), plan.of, plan.iteration_time_s
    high_w = plans.baseline.blocking_power_w
    lasts_s, level_w = _levels(played, _lowered(plan, played), total_s, plans.schedule.ranks * high_w, high_w)
    real = lasts_s > 1e-9 * total_s
    return largest_change(lasts_s[real], level_w[real], within_s)


def largest_change(lasts_s: NDArray[np.float64], level: NDArray[np.float64], within_s: float) -> float:
    """Return the largest difference of two values of a periodic step function at most ``within_s`` apart.

    Shape: ``lasts_s`` and ``level`` [pieces], one period.
    Cost: linear in the pieces that a window and a period hold.
    """
    periods = 1 + math.ceil(min(within_s, lasts_s.sum()) / lasts_s.sum())
    ends_s, levels = np.cumsum(np.tile(lasts_s, periods)), np.tile(level, periods)
    first, largest = 0, 0.0
    highest: deque[int] = deque()
    lowest: deque[int] = deque()
    for at, value in enumerate(levels.tolist()):
        begins_s = ends_s[at] - lasts_s[at % len(lasts_s)]
        while ends_s[first] < begins_s - within_s:
            first += 1
        for queue, sign in ((highest, 1.0), (lowest, -1.0)):
            while queue and queue[0] < first:
                queue.popleft()
            while queue and sign * levels[queue[-1]] <= sign * value:
                queue.pop()
            queue.append(at)
        largest = max(largest, float(levels[highest[0]] - levels[lowest[0]]))
    return largest
