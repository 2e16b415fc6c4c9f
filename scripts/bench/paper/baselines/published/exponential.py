"""A computation's effective energy as a function of its duration in ticks: an exponential, fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

_STEEPEST = 12.0  # decay over the range of durations beyond which a curve is a step


@dataclass(frozen=True, slots=True, eq=False)
class FittedCurve:
    """What is planned with, and what it is rounded to.

    ``cost_j`` is the fitted effective energy at every whole number of ticks from ``shortest`` on;
    ``option_ticks`` are the floored durations of the options that were kept, ascending, and ``option``
    their positions in the computation's table.

    Shape: ``cost_j`` [ticks]; the others [options kept].
    """

    shortest: int
    cost_j: NDArray[np.float64]
    option_ticks: NDArray[np.int64]
    option: NDArray[np.int64]

    @property
    def longest(self) -> int:
        """The duration of the slowest option that was kept."""
        return self.shortest + len(self.cost_j) - 1

    def rounded(self, ticks: int) -> int:
        """Return the slowest option that is no slower than planned."""
        return int(self.option[np.searchsorted(self.option_ticks, ticks, side="right") - 1])


def fitted_curve(
    time_s: NDArray[np.float64], energy_j: NDArray[np.float64], *, blocking_power_w: float, tau_s: float
) -> FittedCurve:
    """Fit ``a exp(b t) + c``, as the published artifact prepares it.

    Options are filtered to the time-energy Pareto front, floored to ticks, the fastest of each tick kept,
    and blocking power is subtracted only afterwards (equation 4 would have it before).
    """
    ticks = np.floor(time_s / tau_s).astype(np.int64)
    kept = _pareto(time_s, energy_j)
    kept = kept[np.unique(ticks[kept], return_index=True)[1]]
    at = ticks[kept]
    effective_j = energy_j[kept] - blocking_power_w * at * tau_s
    span = np.arange(at[0], at[-1] + 1)
    return FittedCurve(int(at[0]), _exponential(at, effective_j, span), at, kept)


def _pareto(time_s: NDArray[np.float64], energy_j: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions of undominated options, fastest first."""
    order = np.lexsort((energy_j, time_s))
    before = np.concatenate(([np.inf], np.minimum.accumulate(energy_j[order])[:-1]))
    return order[energy_j[order] < before]


def _exponential(
    ticks: NDArray[np.int64], cost_j: NDArray[np.float64], span: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Least squares: linear in a and c for every b, and b by a search in one dimension."""
    if len(ticks) == 1:
        return cost_j.copy()
    scale = ticks[-1] - ticks[0]
    where, wanted = (ticks - ticks[0]) / scale, (span - ticks[0]) / scale

    def basis(decay: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([np.exp(-decay * x), np.ones(len(x))])

    def misfit(decay: float) -> float:
        weights, *_ = np.linalg.lstsq(basis(decay, where), cost_j)
        return float(((basis(decay, where) @ weights - cost_j) ** 2).sum())

    decay = float(minimize_scalar(misfit, bounds=(1e-3, _STEEPEST), method="bounded").x)
    weights, *_ = np.linalg.lstsq(basis(decay, where), cost_j)
    fitted: NDArray[np.float64] = basis(decay, wanted) @ weights
    return fitted
