"""What the errors of a profile's energies do to a plan's saving: how sure that is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.record import FrequencyPlan, PlanSet
from perseus_ds.profile import Computation, Profile

TWICE = 1.96  # standard errors on either side hold the true value 95 times in 100

Floats = NDArray[np.float64]


def savings_within_pct(plans: PlanSet, known: Profile) -> Floats | None:
    """Half of the interval that holds each plan's saving 95 times in 100, by the profile's errors alone.

    None where the profile has no errors, and where plans have timelines, whose own errors nobody knows.

    Shape: [plans].
    """
    has_errors = bool(known.errors) or any(
        point.energy_se_j for own in known.points.values() for point in own
    )
    if not has_errors or any(options.timelines for options in plans.options.values()):
        return None
    before_j = plans.baseline.energy_j
    every = np.arange(len(plans))
    return np.asarray(100.0 * TWICE * _errors(plans, every, known, before_j, plans.energy_j / before_j))


def error_of_saving(plan: FrequencyPlan, known: Profile, before_j: float, ratio: float) -> float:
    """Standard error of one plan's saving, as a share.

    ``before_j`` is what an iteration takes without it, ``ratio`` what it takes with it, as a share of that.
    """
    return float(_errors(plan.of, np.array([plan.index]), known, before_j, np.array([ratio]))[0])


def _errors(
    plans: PlanSet, rows: NDArray[np.int64], known: Profile, before_j: float, ratio: Floats
) -> Floats:
    """Standard errors of savings as shares: every point counts as often as it is run on either side.

    Points of one curve are off together, as far as its errors show. Timelines count for nothing.

    Shape: ``rows``, ``ratio`` and the result [rows].
    """
    columns: dict[Computation, list[int]] = {key: [] for key in plans.options}
    for column, instruction in enumerate(plans.computations()):
        columns[instruction.stage, instruction.kind].append(column)
    variance = np.zeros(len(rows))
    for key, own in columns.items():
        points = known.of(*key)
        runs = _runs(plans, rows, np.array(own, np.int64), len(plans.options[key].time_s))[:, : len(points)]
        runs[:, 0] -= ratio * len(own)
        if key in known.errors:
            takes_j = runs * np.array([point.energy_j for point in points])
            off_j = takes_j @ known.errors[key].energy
        else:
            off_j = runs * np.array([point.energy_se_j for point in points])
        variance += (off_j**2).sum(axis=1) / before_j**2
    return np.asarray(np.sqrt(variance))


def _runs(plans: PlanSet, rows: NDArray[np.int64], columns: NDArray[np.int64], options: int) -> Floats:
    """How often each option of one computation is run; a part of it counts as its share of the work.

    Shape: [rows, options].
    """
    place = np.full(len(plans), -1)
    place[rows] = np.arange(len(rows))
    at = np.arange(len(rows))[:, None] * options + plans.choice[rows][:, columns]
    runs = np.bincount(at.ravel(), minlength=len(rows) * options).reshape(len(rows), options).astype(float)
    splits = plans.splits
    mine = np.isin(splits.column, columns) & (place[splits.plan] >= 0)
    plan, rest = splits.plan[mine], 1.0 - splits.share[mine]
    np.subtract.at(runs, (place[plan], plans.choice[plan, splits.column[mine]]), rest)
    np.add.at(runs, (place[plan], splits.option[mine]), rest)
    return runs
