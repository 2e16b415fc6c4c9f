"""The best pair of clocks for every row of a cost table: no slowdown, a tolerance, or energy times delay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from perseus_ds.device.clock_change import ClockPair
from perseus_ds.errors import IncompleteProfileError, InfeasibleError
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence
from perseus_ds.solver.network import hull_of
from perseus_ds.solver.problem import Floats, Ints, OptionTable


class Level(Enum):
    """Unit that shares one pair of clocks."""

    KERNEL = "kernel"
    INSTRUCTION = "instruction"
    PASS = "pass"  # noqa: S105  # no password

    def row_of(self, sequence: LaunchSequence, kernel: KernelClass) -> str:
        """Name what a launch shares its pair with."""
        match self:
            case Level.KERNEL:
                return str(kernel)
            case Level.INSTRUCTION:
                return str(sequence)
            case Level.PASS:
                return sequence.kind.name.lower()


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Time and energy at every pair: of one launch of each kernel class, or of an iteration, row by row.

    A pair at which a row was not measured takes for ever. The first pair is the default one.

    Shape: ``time_s``, ``energy_j`` [rows, pairs].
    """

    rows: tuple[str, ...]
    pairs: tuple[ClockPair, ...]
    time_s: Floats
    energy_j: Floats


def launch_costs(profile: KernelProfile, trace: KernelTrace) -> CostTable:
    """Look up a launch of every class of the trace.

    A class without a measurement has the default pair alone, with its mean traced duration and the mean power
    of the others.

    Raises:
        IncompleteProfileError: none of the trace's classes was measured.
    """
    costs = _looked_up(profile, trace, {one.kernel: one.first for one in profile.measured})
    known = np.isfinite(costs.time_s[:, 0])
    if not known.any():
        raise IncompleteProfileError(
            "the profile has none of the trace's kernel classes", hint="measure the kernels of this trace"
        )
    power_w = float(costs.energy_j[known, 0].sum() / costs.time_s[known, 0].sum())
    total_s, launches = np.zeros(len(trace.classes)), np.zeros(len(trace.classes))
    for sequence in trace.sequences:
        traced = list(sequence.kernels[: len(sequence.duration_s)])
        np.add.at(total_s, traced, sequence.duration_s)
        np.add.at(launches, traced, 1.0)
    costs.time_s[~known, 0] = (total_s / np.maximum(launches, 1.0))[~known]
    costs.energy_j[~known, 0] = power_w * costs.time_s[~known, 0]
    return costs


def second_costs(profile: KernelProfile, trace: KernelTrace) -> tuple[CostTable, CostTable]:
    """Look up the second measurements, and their standard errors; what has none takes for ever."""
    points = {one.kernel: one.second for one in profile.measured}
    return _looked_up(profile, trace, points), _looked_up(profile, trace, points, "_se")


def _looked_up(
    profile: KernelProfile,
    trace: KernelTrace,
    points: Mapping[KernelClass, Sequence[KernelPoint]],
    error: str = "",
) -> CostTable:
    column = {pair: place for place, pair in enumerate(profile.pairs)}
    time_s = np.full((len(trace.classes), len(column)), np.inf)
    energy_j = np.full_like(time_s, np.inf)
    for row, kernel in enumerate(trace.classes):
        for point in points.get(kernel, ()):
            if (place := column.get(point.pair)) is not None:
                time_s[row, place] = getattr(point, f"time{error}_s")
                energy_j[row, place] = getattr(point, f"energy{error}_j")
    return CostTable(tuple(map(str, trace.classes)), profile.pairs, time_s, energy_j)


def cost_table(costs: CostTable, trace: KernelTrace, level: Level = Level.KERNEL) -> CostTable:
    """Add up the launches of an iteration for everything that shares a pair.

    A pair serves a pass or an instruction only where all of its kernels were measured at it.
    """
    groups: dict[str, Counter[int]] = {}
    for sequence in trace.sequences:
        for kernel, count in sequence.counts.items():
            name = level.row_of(sequence, trace.classes[kernel])
            groups.setdefault(name, Counter())[kernel] += count * sequence.times

    def sum_groups(values: Floats) -> Floats:
        rows = [np.array([*counts.values()], float) @ values[[*counts]] for counts in groups.values()]
        return np.array(rows)

    return CostTable(tuple(groups), costs.pairs, sum_groups(costs.time_s), sum_groups(costs.energy_j))


GAP = 1e-4
"""Relative gap at which the mixed-integer program stops."""
_MOST_S = 20.0
"""Time for the program; 1000 rows of 90 options take 6 s. Afterwards its best choice so far is taken."""
_UNITS = 100.0
"""Time and energy of the whole in the program: HiGHS keeps absolute errors of 1e-6."""


class Scope(Enum):
    """Scope of a bound: every row by itself, or their sum."""

    LOCAL = "local"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Goal:
    """Goal of a choice: least energy with at most ``tau`` more time, or least energy times time (``None``).

    A ``tau`` of 0 saves what costs no time.
    """

    tau: float | None = 0.0

    def __str__(self) -> str:
        if self.tau is None:
            return "EDP"
        return "no slowdown" if self.tau == 0.0 else f"{100 * self.tau:g} % slower"


EDP = Goal(None)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPairs:
    """A pair for every row, and the least energy that any choice could cost.

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
        """Time of the whole iteration's kernels."""
        return _sum(self.table.time_s, self.option)

    @property
    def energy_j(self) -> float:
        """Energy of the whole iteration's kernels."""
        return _sum(self.table.energy_j, self.option)


def _sum(values: Floats, option: Ints) -> float:
    return float(values[np.arange(len(option)), option].sum())


def choose(table: CostTable, goal: Goal, scope: Scope = Scope.GLOBAL) -> ChosenPairs:
    """Choose a pair for every row: to ``GAP`` of the best where a bound holds for the sum, else exactly.

    Raises:
        InfeasibleError: never with a table whose first pair is measured in every row.
    """
    time_s, energy_j = table.time_s, table.energy_j
    if scope is Scope.GLOBAL and goal.tau is not None:
        budget_s = (1.0 + goal.tau) * float(time_s[:, 0].sum())
        return ChosenPairs(table, *least_energy(time_s, energy_j, budget_s))
    if scope is Scope.GLOBAL:
        option = _least_product(time_s, energy_j)
    elif goal.tau is None:
        option = np.argmin(time_s * energy_j, axis=1)
    else:
        fits = time_s <= (1.0 + goal.tau) * time_s[:, :1]
        option = np.argmin(np.where(fits, energy_j, np.inf), axis=1)
    return ChosenPairs(table, option, _sum(energy_j, option))


def least_energy(time_s: Floats, energy_j: Floats, budget_s: float) -> tuple[Ints, float]:
    """Choose one option of each row, least energy within a time; return it and a bound on every choice.

    This is the multiple-choice knapsack problem. Relaxed, it is solved by the walk down the rows' hulls: the
    price of the first step that exceeds the time bounds the energy. An option whose reduced cost at that
    price is above the price of the time left is in no better choice. HiGHS chooses among the others. Sums are
    compared to within the rounding of the doubles that they are made of.

    Shape: ``time_s``, ``energy_j`` [rows, options]; an option that does not exist has an infinite time.

    Raises:
        InfeasibleError: not even the fastest options fit.
    """
    budget_s *= 1.0 + len(time_s) * float(np.finfo(float).eps)
    option, steps = _walk(time_s, energy_j)
    used_s = _sum(time_s, option)
    if used_s > budget_s:
        raise InfeasibleError(f"the fastest kernels take {used_s:g} s, more than {budget_s:g} s")
    for price_w, row, slower in steps:
        step_s = float(time_s[row, slower] - time_s[row, option[row]])
        if used_s + step_s > budget_s:
            priced_j = energy_j + price_w * time_s
            left_j = price_w * (budget_s - _sum(time_s, option))
            reduced_j = priced_j - priced_j[np.arange(len(option)), option][:, None]
            near = reduced_j <= left_j * (1.0 + GAP)
            return _by_program(time_s, energy_j, near, budget_s, walked=option, left_j=left_j)
        option[row] = slower
        used_s += step_s
    return option, _sum(energy_j, option)


def _by_program(
    time_s: Floats,
    energy_j: Floats,
    near: NDArray[np.bool_],
    budget_s: float,
    *,
    walked: Ints,
    left_j: float,
) -> tuple[Ints, float]:
    """Choose among the options that are ``near``; keep what was ``walked`` to where nothing better is found.

    That is at most ``left_j`` above the best.
    """
    row, column = np.nonzero(near)
    walked_j = _sum(energy_j, walked)
    bound_j = walked_j - left_j
    one_each = csr_matrix((np.ones(len(row)), (row, np.arange(len(row)))))
    within = csr_matrix(time_s[row, column][None] * (_UNITS / budget_s))
    found = milp(
        energy_j[row, column] * (_UNITS / walked_j),
        integrality=np.ones(len(row), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(within, -np.inf, _UNITS)],
        options={"mip_rel_gap": GAP, "time_limit": _MOST_S},
    )
    if found.x is None:
        return walked, bound_j
    best, taken = walked.copy(), found.x > 0.5  # noqa: PLR2004  # one or zero
    best[row[taken]] = column[taken]
    best_j = _sum(energy_j, best)
    if best_j > walked_j or _sum(time_s, best) > budget_s:
        return walked, bound_j
    return best, min(best_j, max(bound_j, found.mip_dual_bound * walked_j / _UNITS))


def _walk(time_s: Floats, energy_j: Floats) -> tuple[Ints, list[tuple[float, int, int]]]:
    """Return the fastest option of each row, and the steps down all hulls: price, row and option.

    The dearest second comes first: from step to step the whole choice is best at some price of time.
    """
    fastest, steps = np.empty(len(time_s), dtype=np.int64), []
    for row in range(len(time_s)):
        there = np.flatnonzero(np.isfinite(time_s[row]))
        hull = hull_of(OptionTable(time_s[row, there], energy_j[row, there]))
        fastest[row], *slower = there[hull.option].tolist()
        steps += [(price, row, option) for price, option in zip(hull.price_w.tolist(), slower, strict=True)]
    return fastest, sorted(steps, key=lambda step: -step[0])


def _least_product(time_s: Floats, energy_j: Floats) -> Ints:
    """Find the least energy times time: a product of two positive sums is least at a corner of the walk."""
    option, steps = _walk(time_s, energy_j)
    corners = [option.copy()]
    for _, row, slower in steps:
        option[row] = slower
        corners.append(option.copy())
    return min(corners, key=lambda one: _sum(time_s, one) * _sum(energy_j, one))


@dataclass(frozen=True, slots=True)
class Saving:
    """Change of time and energy against the default pair, with their standard errors in points."""

    time_pct: float
    energy_pct: float
    time_se_pct: float = 0.0
    energy_se_pct: float = 0.0


def predict(chosen: ChosenPairs) -> Saving:
    """Return what a choice saves by the numbers that it was made from, of which it picks lucky ones."""
    table = chosen.table
    pairs = (chosen.time_s, table.time_s[:, 0].sum()), (chosen.energy_j, table.energy_j[:, 0].sum())
    return Saving(*(100.0 * (float(value / default) - 1.0) for value, default in pairs))


def validate_on_second_sample(chosen: ChosenPairs, second: CostTable, errors: CostTable) -> Saving | None:
    """Report what a choice saves by measurements that had no part in it; None where a moved row has none.

    A second measurement of the same pairs, and of the default one, has no bias. ``errors`` are its standard
    errors; those of rows are taken as independent.
    """
    moved = np.flatnonzero(chosen.option)
    option = chosen.option[moved]
    if not np.isfinite([second.time_s[moved, option], second.time_s[moved, 0]]).all():
        return None

    def change(first: Floats, again: Floats, se: Floats) -> tuple[float, float]:
        """Return the change of the sum and its error: rows that stay at the default add none."""
        whole = first[:, 0].sum() - first[moved, 0].sum() + again[moved, 0].sum()
        sum_of = (again[moved, option] - again[moved, 0]).sum()
        variance = (se[moved, option] ** 2 + se[moved, 0] ** 2).sum()
        return 100.0 * float(sum_of / whole), 100.0 * float(np.sqrt(variance) / whole)

    time_pct, time_se_pct = change(chosen.table.time_s, second.time_s, errors.time_s)
    energy_pct, energy_se_pct = change(chosen.table.energy_j, second.energy_j, errors.energy_j)
    return Saving(time_pct, energy_pct, time_se_pct, energy_se_pct)


# Less noise before the choice: time and power of one kernel are smooth in the two clocks, measurements are
# not. Each point is drawn towards a low-order surface by the share of its departure that noise explains: all
# the way where the surface fits within the noise, hardly where the surface is wrong. At 0.3 % noise this
# leaves a choice that is to lose no time 0.05 % slower in place of 0.17 %.
#
# Source: Efron and Morris 1973, shrinkage towards a regression surface.

_FEWEST_SPARE = 3


def smooth(profile: KernelProfile) -> KernelProfile:
    """Draw every first measurement towards its class's surface; a class with few points stays as it is."""
    return replace(
        profile, measured=tuple(replace(one, first=_smooth(one.first)) for one in profile.measured)
    )


def _smooth(points: Sequence[KernelPoint]) -> tuple[KernelPoint, ...]:
    core, core_auto = _periods([point.pair.clock_mhz for point in points])
    memory, memory_auto = _periods([point.pair.memory_mhz for point in points])
    columns = [core**0, core, core**2, core**3, memory, memory**2, core * memory, core_auto, memory_auto]
    terms = np.stack(columns, axis=1)
    time_s = _draw(terms, *np.array([(point.time_s, point.time_se_s) for point in points]).T)
    energy_j = _draw(terms, *np.array([(point.energy_j, point.energy_se_j) for point in points]).T)
    return tuple(
        replace(point, time_s=t, energy_j=e)
        for point, t, e in zip(points, time_s.tolist(), energy_j.tolist(), strict=True)
    )


def _periods(clocks_mhz: Sequence[int | None]) -> tuple[Floats, Floats]:
    """Clock periods against that of the highest clock, in logarithms, and where the device chooses."""
    highest = max((mhz for mhz in clocks_mhz if mhz is not None), default=1)
    period = np.array([0.0 if mhz is None else np.log(highest / mhz) for mhz in clocks_mhz])
    return period, np.array([1.0 if mhz is None else 0.0 for mhz in clocks_mhz])


def _draw(terms: Floats, values: Floats, errors: Floats) -> Floats:
    """Draw ``values`` towards the surface through their logarithms by the noise's part of the misfit."""
    logs = np.log(values)
    solved, _, rank, _ = np.linalg.lstsq(terms, logs, rcond=None)
    spare = len(values) - int(rank)
    if spare < _FEWEST_SPARE or not errors.any():
        return values
    misfit = logs - terms @ solved
    explained = float(((errors / values) ** 2).mean()) * spare / float((misfit**2).sum() or np.inf)
    drawn: Floats = np.exp(logs - min(1.0, explained) * misfit)
    return drawn
