"""What errors a profile has, and what they may cost: a plan prefers entries that are too good by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perseus_ds.plan.solving.problem import PlanProblem, problem_of
from perseus_ds.plan.solving.strategy import fastest
from perseus_ds.plan.solving.switching import FREE
from perseus_ds.profile import Point, Profile, smoothed
from perseus_ds.profile.curves.scatter import scatters
from perseus_ds.schedule import Schedule
from perseus_ds.solver import blended

MOST_COMPUTATIONS = 2_000
"""More are not planned again to see what errors cost."""
DRAWS = 3
FEW_COMPUTATIONS = 400
"""Of more one draw is planned: three cost as much as the plan itself."""
HARMLESS_PCT = 0.03
"""Errors of time that small cost no time worth a line: they are not planned again."""
WORTH_SAYING_PCT = 0.1
"""Less time than that is not worth a line."""
LEAST_SHARE = 0.1
"""A drawn duration or energy keeps at least that share."""


@dataclass(frozen=True, slots=True)
class EntryError:
    """One standard error of an entry of a profile, root mean square of all, and what that may cost.

    ``measured``: the profile's own standard errors, else the scatter of its points around smooth curves.
    ``slowdown_pct`` is how much longer the plan that loses no time may take than it states. It is None where
    the schedule is too large to plan again, or the errors are too small to cost anything.

    Units: percent.
    """

    time_pct: float
    energy_pct: float
    measured: bool
    slowdown_pct: float | None

    @property
    def matters(self) -> bool:
        """Whether it is worth a line."""
        return (self.time_pct if self.slowdown_pct is None else self.slowdown_pct) >= WORTH_SAYING_PCT

    def __str__(self) -> str:
        """One line for a terminal."""
        whose = "its standard errors" if self.measured else "the scatter of its points around smooth curves"
        said = (
            f"the profile is off by {self.time_pct:.2g} % in time and {self.energy_pct:.2g} % in energy per"
        )
        said += f" entry ({whose})"
        if self.slowdown_pct is None:
            return said
        return (
            f"{said}: a plan prefers entries that are too good by chance, so the plan that loses no time may"
            f" really take about {self.slowdown_pct:.2f} % longer. A profile of longer windows"
            " (perseus.profile.min_window_s) has smaller errors"
        )


def profile_error(profile: Profile, schedule: Schedule, blocking_power_w: float) -> EntryError | None:
    """Find a profile's errors and what they may cost; None where it has neither errors nor enough points.

    The cost is found by planning with other errors of the same size, drawn three times (once for a large
    schedule). Those plans are then run at this profile's durations.

    Cost: the fastest plan of three small schedules, or of one of `MOST_COMPUTATIONS`.
    """
    points = [point for own in profile.points.values() for point in own]
    measured = any(point.time_se_s > 0.0 or point.energy_se_j > 0.0 for point in points)
    errors = _standard_errors(points) if measured else scatters(profile)
    if errors is None:
        return None
    slowdown_pct = None
    computations = sum(len(order) for order in schedule.orders)
    if computations <= MOST_COMPUTATIONS and 100.0 * errors[0] >= HARMLESS_PCT:
        draws = DRAWS if computations <= FEW_COMPUTATIONS else 1
        slowdown_pct = _slowdown_pct(smoothed(profile), schedule, blocking_power_w, errors, draws)
    return EntryError(100.0 * errors[0], 100.0 * errors[1], measured, slowdown_pct)


def _standard_errors(points: Sequence[Point]) -> tuple[float, float]:
    """Return those of time and energy as shares, root mean square over all points."""
    shares = [(p.time_se_s / p.time_s, p.energy_se_j / p.energy_j) for p in points]
    time, energy = np.sqrt(np.mean(np.square(shares), axis=0)).tolist()
    return time, energy


def _slowdown_pct(
    profile: Profile,
    schedule: Schedule,
    blocking_power_w: float,
    errors: tuple[float, float],
    draws: int,
) -> float:
    truth = problem_of(profile, schedule, blocking_power_w)
    own_s = truth.baseline(blocking_power_w).iteration_time_s
    played_s = [
        _played_s(truth, problem_of(_drawn(profile, errors, seed), schedule, blocking_power_w))
        for seed in range(draws)
    ]
    return max(0.0, 100.0 * (float(np.mean(played_s)) / own_s - 1.0))


def _played_s(truth: PlanProblem, drawn: PlanProblem) -> float:
    """How long the plan that loses no time with drawn errors really takes."""
    every = fastest(drawn, FREE, also_s=drawn.baseline(0.0).iteration_time_s)
    plans = every.at(np.array([len(every) - 1], np.int32))
    duration_s, _ = blended(truth.activities, plans.choice, plans.other, plans.share)
    starts_s = truth.dag.earliest_starts(duration_s[0].tolist(), truth.fixed_s)
    return float(max(start + lasts for start, lasts in zip(starts_s, duration_s[0].tolist(), strict=True)))


def _drawn(profile: Profile, errors: tuple[float, float], seed: int) -> Profile:
    """The same profile with other errors."""
    draw = np.random.default_rng(seed)
    if profile.errors:
        return _drawn_curves(profile, draw)

    def other(value: float, error: float) -> float:
        return value * max(LEAST_SHARE, 1.0 + error * float(draw.standard_normal()))

    points = {
        key: tuple(
            replace(point, time_s=other(point.time_s, errors[0]), energy_j=other(point.energy_j, errors[1]))
            for point in own
        )
        for key, own in profile.points.items()
    }
    return replace(profile, points=points)


def _drawn_curves(profile: Profile, draw: np.random.Generator) -> Profile:
    """The same with other errors of its curves, which are off alike at all their clocks."""
    points = dict(profile.points)
    for key, errors in profile.errors.items():
        own = profile.of(*key)
        times, energies = (
            np.maximum(LEAST_SHARE, 1.0 + factor @ draw.standard_normal(len(own))).tolist()
            for factor in (errors.time, errors.energy)
        )
        points[key] = tuple(
            replace(point, time_s=point.time_s * time, energy_j=point.energy_j * energy)
            for point, time, energy in zip(own, times, energies, strict=True)
        )
    return replace(profile, points=points)
