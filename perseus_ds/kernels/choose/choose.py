"""The best pair of clocks for every row of a cost table: waste, a tolerance, or energy times delay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from perseus_ds.device.clock_pair import ClockPair
from perseus_ds.errors import ConfigError
from perseus_ds.kernels.choose.hulls import hulls_of
from perseus_ds.kernels.choose.knapsack import solve_knapsack
from perseus_ds.kernels.choose.table import CostTable
from perseus_ds.solver.problem import Floats, Ints


class Scope(Enum):
    """Where a bound holds: for every row by itself, or for their sum."""

    LOCAL = "local"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: least energy with at most ``tau`` more time, or least energy times time (``None``).

    A ``tau`` of 0 is the waste: energy that costs no time to save.
    """

    tau: float | None = 0.0

    def __post_init__(self) -> None:
        if self.tau is not None and not 0.0 <= self.tau < np.inf:
            raise ConfigError(f"tau is {self.tau}", hint="expected 0 (no loss of time) or more")

    def __str__(self) -> str:
        if self.tau is None:
            return "EDP"
        return "waste" if self.tau == 0.0 else f"{100 * self.tau:g} % slower"


EDP = Goal(None)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPairs:
    """A pair for every row, what it costs as measured, and the least that any choice could cost.

    Shape: ``option`` [rows], positions in the table's pairs.
    """

    table: CostTable
    option: Ints
    bound_j: float

    @property
    def pairs(self) -> tuple[ClockPair, ...]:
        """The chosen pair of each row."""
        return tuple(self.table.pairs[option] for option in self.option.tolist())

    @property
    def time_s(self) -> float:
        """The whole iteration's kernels."""
        return float(self._picked(self.table.time_s).sum())

    @property
    def energy_j(self) -> float:
        """The whole iteration's kernels."""
        return float(self._picked(self.table.energy_j).sum())

    @property
    def time_pct(self) -> float:
        """Change of time against default clocks."""
        return 100.0 * (self.time_s / self.table.default_s - 1.0)

    @property
    def energy_pct(self) -> float:
        """Change of energy against default clocks."""
        return 100.0 * (self.energy_j / self.table.default_j - 1.0)

    def _picked(self, values: Floats) -> Floats:
        return values[np.arange(len(self.option)), self.option]


def choose(table: CostTable, goal: Goal, scope: Scope = Scope.GLOBAL) -> ChosenPairs:
    """Choose exactly.

    Under EDP the products of all choices are least at a corner of their common hull: a product of two
    positive sums is quasi-concave. So the corners, one per price of time, are all that is looked at.

    Raises:
        InfeasibleError: never with a table whose first pair is measured in every row.
    """
    if goal.tau is None:
        option = (
            _least_product(table) if scope is Scope.GLOBAL else _first_least(table.time_s * table.energy_j)
        )
    elif scope is Scope.GLOBAL:
        found = solve_knapsack(table.time_s, table.energy_j, (1.0 + goal.tau) * table.default_s)
        return ChosenPairs(table, found.option, found.bound_j)
    else:
        fits = table.time_s <= (1.0 + goal.tau) * table.time_s[:, :1]
        option = _first_least(np.where(fits, table.energy_j, np.inf))
    chosen = ChosenPairs(table, option, 0.0)
    return ChosenPairs(table, option, chosen.energy_j)


def _first_least(values: Floats) -> Ints:
    first: Ints = np.argmin(values, axis=1)
    return first


def _least_product(table: CostTable) -> Ints:
    hulls = hulls_of(table.time_s, table.energy_j)
    option = hulls.fastest.copy()
    rows = np.arange(len(option))
    time_s = float(table.time_s[rows, option].sum())
    energy_j = float(table.energy_j[rows, option].sum())
    best, best_j_s = option.copy(), time_s * energy_j
    for row, slower in zip(hulls.row.tolist(), hulls.slower.tolist(), strict=True):
        time_s += table.time_s[row, slower] - table.time_s[row, option[row]]
        energy_j += table.energy_j[row, slower] - table.energy_j[row, option[row]]
        option[row] = slower
        if time_s * energy_j < best_j_s:
            best, best_j_s = option.copy(), time_s * energy_j
    return best


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Change of time and energy by the second measurement, with their standard errors in points."""

    time_pct: float
    energy_pct: float
    time_se_pct: float
    energy_se_pct: float


def confirm(chosen: ChosenPairs, second: CostTable, spread: CostTable) -> Confirmed | None:
    """Report what a choice is worth by measurements that had no part in it.

    ``None`` where a row that changes its pair has none.

    The numbers that a choice was made from are too good, since the lucky ones were chosen. A second
    measurement of the same pairs, and of the default one, has no such bias. ``spread`` holds the standard
    errors of the second measurement; those of rows are taken as independent.
    """
    moved = np.flatnonzero(chosen.option)
    if not np.isfinite([second.time_s[moved, chosen.option[moved]], second.time_s[moved, 0]]).all():
        return None
    time = _change(chosen, moved, chosen.table.time_s, second.time_s, spread.time_s)
    energy = _change(chosen, moved, chosen.table.energy_j, second.energy_j, spread.energy_j)
    return Confirmed(time[0], energy[0], time[1], energy[1])


def _change(
    chosen: ChosenPairs, moved: Ints, first: Floats, second: Floats, spread: Floats
) -> tuple[float, float]:
    """The change of the sum in percent, and its standard error: rows that stay at the default add none."""
    option = chosen.option[moved]
    whole = first[:, 0].sum() - first[moved, 0].sum() + second[moved, 0].sum()
    change = (second[moved, option] - second[moved, 0]).sum()
    variance = (spread[moved, option] ** 2 + spread[moved, 0] ** 2).sum()
    return 100.0 * float(change / whole), 100.0 * float(np.sqrt(variance) / whole)
