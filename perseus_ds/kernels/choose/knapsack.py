"""One option for every row, least energy within a time: the multiple-choice knapsack, solved exactly.

The relaxed problem is solved along the rows' hulls and gives the price of time. Against that price every
other option has a reduced cost. A whole choice costs above the relaxed bound the sum of its reduced costs
plus the price of the time that it leaves unused. A dynamic program over the few rows whose options are cheap
enough finds the least such sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.errors import InfeasibleError
from perseus_ds.kernels.choose.core import expand
from perseus_ds.kernels.choose.hulls import hulls_of
from perseus_ds.solver.problem import Floats, Ints

MOST_STATES = 400_000
"""Partial choices kept side by side; where more would be needed the certified gap is not zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """A choice and its certificate: no choice within the time uses less than ``bound_j``.

    Shape: ``option`` [rows], positions in each row.
    """

    option: Ints
    time_s: float
    energy_j: float
    bound_j: float

    @property
    def gap_pct(self) -> float:
        """How far the choice may be from the best, in percent of its energy."""
        return 100.0 * (1.0 - self.bound_j / self.energy_j)


def solve_knapsack(
    time_s: Floats, energy_j: Floats, budget_s: float, *, most_states: int = MOST_STATES
) -> Picks:
    """Choose one option of each row.

    An option that does not exist has an infinite time. Sums are compared to within the rounding of the
    doubles that they are made of.

    Shape: ``time_s``, ``energy_j`` [rows, options].

    Raises:
        InfeasibleError: not even the fastest options fit.
    Source: Pisinger 1995, a minimal algorithm for the multiple-choice knapsack problem.
    """
    rows = np.arange(len(time_s))
    rounding = len(rows) * float(np.finfo(float).eps)
    budget_s *= 1.0 + rounding
    option, price_w, fits = _relaxed(time_s, energy_j, budget_s)
    base_s = float(time_s[rows, option].sum())
    slack_s = budget_s - base_s
    if fits:
        return _chosen(option, time_s, energy_j, 0.0)
    finite = np.where(np.isfinite(time_s), time_s, 0.0)
    longer_s = time_s - time_s[rows, option][:, None]
    reduced_j = energy_j + price_w * finite
    reduced_j = np.where(np.isfinite(time_s), reduced_j - reduced_j[rows, option][:, None], np.inf)
    tolerance_j = rounding * float(energy_j[rows, option].sum())
    found = expand(longer_s, np.maximum(reduced_j, 0.0), price_w, slack_s, tolerance_j, most_states)
    better = option.copy()
    better[found.row] = found.option
    return _chosen(better, time_s, energy_j, found.gap_j)


def _relaxed(time_s: Floats, energy_j: Floats, budget_s: float) -> tuple[Ints, float, bool]:
    """Walk down the hulls while the time lasts: the choice, the price of the next step, if all fit."""
    hulls = hulls_of(time_s, energy_j)
    option = hulls.fastest.copy()
    rows = np.arange(len(option))
    used_s = float(time_s[rows, option].sum())
    if used_s > budget_s:
        raise InfeasibleError(f"the fastest kernels take {used_s:g} s, more than {budget_s:g} s")
    for row, slower, price_w in zip(
        hulls.row.tolist(), hulls.slower.tolist(), hulls.price.tolist(), strict=True
    ):
        step_s = float(time_s[row, slower] - time_s[row, option[row]])
        if used_s + step_s > budget_s:
            return option, price_w, False
        option[row] = slower
        used_s += step_s
    return option, 0.0, True


def _chosen(option: Ints, time_s: Floats, energy_j: Floats, gap_j: float) -> Picks:
    rows = np.arange(len(option))
    total_j = float(energy_j[rows, option].sum())
    return Picks(option, float(time_s[rows, option].sum()), total_j, total_j - gap_j)
