"""What to expect where replicas are paced and iterations follow their loads, by the loads that were seen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.plan import Expected, FrequencyPlan
from perseus_ds.plan.playing.expected import LEFT_OUT, LEFT_OUT_OF_TIME, spared_w
from perseus_ds.plan.playing.saving_errors import TWICE, error_of_saving
from perseus_ds.profile import Profile, smoothed
from perseus_ds.profile.loads.seen_loads import SeenLoads
from perseus_ds.straggler.pacing.paper_job import PaperJob, Sides

FEWEST_SEEN = 3
_LEAST, _MOST = 8, 60  # iterations
_MOST_S = 10.0  # of CPU time, for solving them

Floats = NDArray[np.float64]


def expected_by_loads(
    plan: FrequencyPlan,
    profile: Profile,
    objective: Objective,
    change: ClockChange,
    *,
    replicas: int,
    seen: SeenLoads | None = None,
) -> tuple[Expected, Expected] | None:
    """Run iterations of ``seen`` loads on paper (None: those of the profile); None where these are too few.

    Returns what to expect at these loads of the plan itself, and where iterations follow them.

    The intervals hold the errors of the profile's energies and of a mean over so few seen iterations, and
    what is left out on paper.

    Raises:
        SolverError: an iteration's numbers do not fit the integer scale.
    Cost: some 10 CPU s, but for the fewest iterations.
    """
    loads = profile.seen_loads if seen is None else seen
    fits = bool(loads) and len(loads[0][0]) == plan.of.schedule.microbatches
    if len(loads) < FEWEST_SEEN or not fits or not profile.loads:
        return None
    job = PaperJob(plan, profile, objective, change, replicas)
    affordable = int(np.clip(_MOST_S / job.solving_s(loads[0][0]), _LEAST, _MOST))
    rounds = max(1, affordable // len(loads))
    sides = [job.iterate(loads, n) for n in range(min(affordable, rounds * len(loads)))]
    different = min(len(loads), len(sides))
    without, with_it = (_expected(plan, profile, sides, side, different=different) for side in (1, 2))
    return without, with_it


def _expected(
    plan: FrequencyPlan, profile: Profile, sides: Sequence[Sides], side: int, *, different: int
) -> Expected:
    """Hold one side's iterations against the same ones at default clocks."""
    time_s = np.array([one.time_s for one in sides])[:, [0, side]]
    energy_j = np.array([one.energy_j for one in sides])[:, [0, side]]
    (before_s, after_s), (before_j, after_j) = time_s.mean(axis=0), energy_j.mean(axis=0)
    spared_j = after_s * float(spared_w(before_j / before_s, after_j / after_s, profile.leakage).sum())
    whole_j = float(before_j.sum())
    ratio = (float(after_j.sum()) - spared_j) / whole_j
    leaked = spared_j / whole_j * profile.leakage_se / profile.leakage if profile.leakage else 0.0
    measured = error_of_saving(plan, smoothed(profile), whole_j, ratio)
    drawn = _error(energy_j.sum(axis=2), different)
    slower = math.hypot(LEFT_OUT_OF_TIME, _error(time_s, different))
    return Expected(
        saving_pct=float(100.0 * (1.0 - ratio)),
        slowdown_pct=float(100.0 * (after_s / before_s - 1.0)),
        within_pct=100.0 * TWICE * math.hypot(measured, leaked, LEFT_OUT, drawn),
        slowdown_within_pct=100.0 * TWICE * slower,
    )


def _error(sides: Floats, different: int) -> float:
    """Standard error of a ratio of sums, where only so many iterations had loads of their own.

    Shape: ``sides`` [iterations, 2], before and after.
    Source: the ratio estimator of survey sampling, W. G. Cochran, Sampling Techniques (1977), section 6.3.
    """
    before, after = sides.T
    ratio = after.sum() / before.sum()
    by_loads = [(after - ratio * before)[n::different].mean() for n in range(different)]
    return float(np.std(by_loads, ddof=1) / math.sqrt(different) / before.mean())
