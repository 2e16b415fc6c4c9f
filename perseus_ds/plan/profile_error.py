"""What errors a profile has, and what they cost the plan that loses no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.config import Objective
from perseus_ds.plan.playing.time_errors import time_errors
from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.select import select
from perseus_ds.profile import Point, Profile, smoothed
from perseus_ds.profile.curves.scatter import ENOUGH_POINTS, scatters
from perseus_ds.profile.curves.smoothing import SCATTER_HARMLESS
from perseus_ds.schedule import dag_of

HARMLESS_PCT = 0.03
"""Errors of time that small cost no time worth a line."""
WORTH_SAYING_PCT = 0.1
"""Less time than that is not worth a line."""


@dataclass(frozen=True, slots=True)
class EntryError:
    """One standard error of an entry of a profile, root mean square of all, and what that may cost.

    ``measured``: the profile's own standard errors, else the scatter of its points around smooth curves.
    ``slowdown_pct`` is how much longer the plan that loses no time takes than the highest clocks. It is a
    mean over what these errors leave open, None where they are too small to cost anything.

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
            f"{said}: the plan that loses no time keeps a margin for that, and really takes"
            f" {self.slowdown_pct:.2f} % longer on average. A profile of longer windows"
            " (perseus.profile.min_window_s) has smaller errors"
        )


@dataclass(frozen=True, slots=True)
class FewClocks:
    """A profile of so few clocks, without errors of its own, that its durations are in doubt.

    ``scatter_pct`` is that of its times around smooth curves; None where there are too few clocks to see any.
    """

    clocks: int
    scatter_pct: float | None

    def __str__(self) -> str:
        """One line for a terminal."""
        told = f"the profile states no errors, and at {self.clocks} clocks"
        if self.scatter_pct is None:
            return f"{told} none can be seen: the plan that loses no time may lose what durations are off by"
        return (
            f"{told} its times scatter by {self.scatter_pct:.2g} % around smooth curves: plans keep a margin"
            f" for that, and the one that loses no time may still lose some. {ENOUGH_POINTS} clocks show more"
        )


def few_clocks(profile: Profile) -> FewClocks | None:
    """Doubt a profile as it was read; None where it gives no cause."""
    points = [point for own in profile.points.values() for point in own]
    clocks = min(map(len, profile.points.values()))
    if clocks >= ENOUGH_POINTS or any(p.time_se_s > 0.0 or p.samples > 1 for p in points):
        return None
    found = scatters(profile)
    if found is None:
        return FewClocks(clocks, None)
    return None if found[0] < SCATTER_HARMLESS else FewClocks(clocks, 100.0 * found[0])


def profile_error(profile: Profile, plans: PlanSet) -> EntryError | None:
    """Find a profile's errors and what they may cost its plan; None where it has neither errors nor points.

    Cost: some passes over the schedule's graph.
    """
    points = [point for own in profile.points.values() for point in own]
    measured = any(point.time_se_s > 0.0 or point.energy_se_j > 0.0 for point in points)
    errors = _standard_errors(points) if measured else scatters(profile)
    if errors is None:
        return None
    slowdown_pct = None
    if 100.0 * errors[0] >= HARMLESS_PCT:
        dag, plan = dag_of(plans.schedule), select(plans, Objective())
        found = time_errors(plan, smoothed(profile), dag, np.ones((len(dag.nodes), 1)), {})
        slowdown_pct = max(0.0, 100.0 * found.slower)
    return EntryError(100.0 * errors[0], 100.0 * errors[1], measured, slowdown_pct)


def _standard_errors(points: Sequence[Point]) -> tuple[float, float]:
    """Return those of time and energy as shares, root mean square over all points."""
    shares = [(p.time_se_s / p.time_s, p.energy_se_j / p.energy_j) for p in points]
    time, energy = np.sqrt(np.mean(np.square(shares), axis=0)).tolist()
    return time, energy
