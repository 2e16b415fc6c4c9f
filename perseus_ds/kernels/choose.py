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

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import ConfigError, IncompleteProfileError, InfeasibleError
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.trace import KernelClass, KernelTrace, LaunchSequence
from perseus_ds.solver.network import hull_of
from perseus_ds.solver.problem import Floats, Ints, OptionTable

# The cost of an iteration's kernels at every pair of clocks: profile and trace as one table.


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
    """An iteration, row by row: kernel classes, or instructions, or passes as a whole.

    A pair at which a row was not measured takes for ever. The first pair is the default one.

    Shape: ``time_s``, ``energy_j`` [rows, pairs], all launches of an iteration together.
    """

    rows: tuple[str, ...]
    pairs: tuple[ClockPair, ...]
    time_s: Floats
    energy_j: Floats

    @property
    def default_s(self) -> float:
        """The whole at default clocks."""
        return float(self.time_s[:, 0].sum())

    @property
    def default_j(self) -> float:
        """The whole at default clocks."""
        return float(self.energy_j[:, 0].sum())


@dataclass(frozen=True, slots=True, eq=False)
class LaunchCosts:
    """A launch of every class of a trace at every pair.

    ``left_out`` are classes without a measurement: they have the default pair alone, with the duration
    that was traced and the mean power of the others.

    Shape: ``time_s``, ``energy_j`` [classes, pairs].
    """

    pairs: tuple[ClockPair, ...]
    time_s: Floats
    energy_j: Floats
    left_out: tuple[KernelClass, ...] = ()


def launch_costs(profile: KernelProfile, trace: KernelTrace) -> LaunchCosts:
    """Look up every class of the trace.

    Raises:
        IncompleteProfileError: none of the trace's classes was measured.
    """
    costs = _looked_up(profile.pairs, profile.points, trace, "time_s", "energy_j")
    known = np.isfinite(costs.time_s[:, 0])
    if not known.any():
        raise IncompleteProfileError(
            "the profile has none of the trace's kernel classes", hint="measure the kernels of this trace"
        )
    power_w = float(costs.energy_j[known, 0].sum() / costs.time_s[known, 0].sum())
    traced_s = _traced_s(trace)
    costs.time_s[~known, 0] = traced_s[~known]
    costs.energy_j[~known, 0] = power_w * traced_s[~known]
    return replace(costs, left_out=tuple(trace.classes[row] for row in np.flatnonzero(~known)))


def second_costs(profile: KernelProfile, trace: KernelTrace) -> tuple[LaunchCosts, LaunchCosts]:
    """Look up the second measurements, and their standard errors; what has none takes for ever."""
    pairs, points = profile.pairs, profile.second
    return (
        _looked_up(pairs, points, trace, "time_s", "energy_j"),
        _looked_up(pairs, points, trace, "time_se_s", "energy_se_j"),
    )


def _looked_up(
    pairs: tuple[ClockPair, ...],
    points: Mapping[KernelClass, Sequence[KernelPoint]],
    trace: KernelTrace,
    time: str,
    energy: str,
) -> LaunchCosts:
    column = {pair: place for place, pair in enumerate(pairs)}
    time_s = np.full((len(trace.classes), len(column)), np.inf)
    energy_j = np.full_like(time_s, np.inf)
    for row, kernel in enumerate(trace.classes):
        for point in points.get(kernel, ()):
            if point.pair in column:
                time_s[row, column[point.pair]] = getattr(point, time)
                energy_j[row, column[point.pair]] = getattr(point, energy)
    return LaunchCosts(pairs, time_s, energy_j)


def cost_table(costs: LaunchCosts, trace: KernelTrace, level: Level = Level.KERNEL) -> CostTable:
    """Add up the launches of an iteration for everything that shares a pair.

    A pair serves a pass or an instruction only where all of its kernels were measured at it.
    """
    groups: dict[str, Counter[int]] = {}
    for sequence in trace.sequences:
        for kernel, count in sequence.counts.items():
            name = level.row_of(sequence, trace.classes[kernel])
            groups.setdefault(name, Counter())[kernel] += count * sequence.times
    shape = (len(groups), len(costs.pairs))
    time_s, energy_j = np.empty(shape), np.empty(shape)
    for row, counts in enumerate(groups.values()):
        kernels, launches = list(counts), np.array(list(counts.values()), dtype=float)
        time_s[row] = launches @ costs.time_s[kernels]
        energy_j[row] = launches @ costs.energy_j[kernels]
    assert costs.pairs[0] == DEFAULT_PAIR
    return CostTable(tuple(groups), costs.pairs, time_s, energy_j)


def _traced_s(trace: KernelTrace) -> Floats:
    """Mean traced duration of one launch of each class; 0 where none is known.

    Shape: [classes].
    """
    total_s, launches = np.zeros(len(trace.classes)), np.zeros(len(trace.classes))
    for sequence in trace.sequences:
        for kernel, duration_s in zip(sequence.kernels, sequence.duration_s, strict=False):
            total_s[kernel] += duration_s
            launches[kernel] += 1
    return total_s / np.maximum(launches, 1.0)


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

    def __post_init__(self) -> None:
        if self.tau is not None and not 0.0 <= self.tau < np.inf:
            raise ConfigError(f"tau is {self.tau}", hint="expected 0 (no loss of time) or more")

    def __str__(self) -> str:
        if self.tau is None:
            return "EDP"
        return "no slowdown" if self.tau == 0.0 else f"{100 * self.tau:g} % slower"


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
    """Choose a pair for every row: to ``GAP`` of the best where a bound holds for the sum, else exactly.

    Raises:
        InfeasibleError: never with a table whose first pair is measured in every row.
    """
    time_s, energy_j = table.time_s, table.energy_j
    if scope is Scope.GLOBAL and goal.tau is not None:
        return ChosenPairs(table, *least_energy(time_s, energy_j, (1.0 + goal.tau) * table.default_s))
    if scope is Scope.GLOBAL:
        option = _least_product(time_s, energy_j)
    elif goal.tau is None:
        option = np.argmin(time_s * energy_j, axis=1)
    else:
        fits = time_s <= (1.0 + goal.tau) * time_s[:, :1]
        option = np.argmin(np.where(fits, energy_j, np.inf), axis=1)
    return ChosenPairs(table, option, float(energy_j[np.arange(len(option)), option].sum()))


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
    rows = np.arange(len(time_s))
    budget_s *= 1.0 + len(rows) * float(np.finfo(float).eps)
    option, steps = _walk(time_s, energy_j)
    used_s = float(time_s[rows, option].sum())
    if used_s > budget_s:
        raise InfeasibleError(f"the fastest kernels take {used_s:g} s, more than {budget_s:g} s")
    for price_w, row, slower in steps:
        step_s = float(time_s[row, slower] - time_s[row, option[row]])
        if used_s + step_s > budget_s:
            priced_j = energy_j + price_w * time_s
            left_j = price_w * (budget_s - float(time_s[rows, option].sum()))
            near = priced_j - priced_j[rows, option][:, None] <= left_j * (1.0 + GAP)
            return _by_program(time_s, energy_j, near, budget_s, (option, left_j))
        option[row] = slower
        used_s += step_s
    return option, float(energy_j[rows, option].sum())


def _by_program(
    time_s: Floats, energy_j: Floats, near: NDArray[np.bool_], budget_s: float, walked: tuple[Ints, float]
) -> tuple[Ints, float]:
    """Choose among the options that are ``near``; where nothing better is found, keep what was ``walked`` to.

    ``walked`` comes with the energy by which it may be above the best.
    """
    row, column = np.nonzero(near)
    rows, (option, left_j) = np.arange(len(time_s)), walked
    walked_j = float(energy_j[rows, option].sum())
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
        return option, bound_j
    best, taken = option.copy(), found.x > 0.5  # noqa: PLR2004  # one or zero
    best[row[taken]] = column[taken]
    best_j = float(energy_j[rows, best].sum())
    if best_j > walked_j or time_s[rows, best].sum() > budget_s:
        return option, bound_j
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
    rows = np.arange(len(option))
    total_s, total_j = float(time_s[rows, option].sum()), float(energy_j[rows, option].sum())
    best, least = option.copy(), total_s * total_j
    for _, row, slower in steps:
        total_s += time_s[row, slower] - time_s[row, option[row]]
        total_j += energy_j[row, slower] - energy_j[row, option[row]]
        option[row] = slower
        if total_s * total_j < least:
            best, least = option.copy(), total_s * total_j
    return best


@dataclass(frozen=True, slots=True)
class ValidatedSaving:
    """Change of time and energy by the second measurement, with their standard errors in points."""

    time_pct: float
    energy_pct: float
    time_se_pct: float
    energy_se_pct: float


def validate_on_second_sample(
    chosen: ChosenPairs, second: CostTable, spread: CostTable
) -> ValidatedSaving | None:
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
    return ValidatedSaving(time[0], energy[0], time[1], energy[1])


def _change(
    chosen: ChosenPairs, moved: Ints, first: Floats, second: Floats, spread: Floats
) -> tuple[float, float]:
    """The change of the sum in percent, and its standard error: rows that stay at the default add none."""
    option = chosen.option[moved]
    whole = first[:, 0].sum() - first[moved, 0].sum() + second[moved, 0].sum()
    change = (second[moved, option] - second[moved, 0]).sum()
    variance = (spread[moved, option] ** 2 + spread[moved, 0] ** 2).sum()
    return 100.0 * float(change / whole), 100.0 * float(np.sqrt(variance) / whole)


# Less noise before the choice: every measurement drawn towards what its neighbours state.
#
# Time and power of one kernel are smooth in the two clocks; measurements are not. A low-order surface is
# fitted to a class's points, and each point is drawn towards it by the share of its departure that noise
# explains: all the way where the surface fits within the noise, hardly where the surface is wrong.
#
# Source: Efron and Morris 1973, shrinkage towards a regression surface.

_FEWEST_SPARE = 3


def smoothed(profile: KernelProfile) -> KernelProfile:
    """Draw every first measurement towards its class's surface; a class with few points stays as it is."""
    return replace(profile, points={kernel: _smooth(points) for kernel, points in profile.points.items()})


def _smooth(points: Sequence[KernelPoint]) -> tuple[KernelPoint, ...]:
    if not any(point.time_se_s or point.energy_se_j for point in points):
        return tuple(points)
    terms = _terms(points)
    time_s = np.array([point.time_s for point in points])
    energy_j = np.array([point.energy_j for point in points])
    time_se = np.array([point.time_se_s for point in points]) / time_s
    energy_se = np.array([point.energy_se_j for point in points]) / energy_j
    log_time = _drawn(terms, np.log(time_s), time_se)
    log_energy = _drawn(terms, np.log(energy_j), energy_se)
    return tuple(
        replace(point, time_s=float(np.exp(t)), energy_j=float(np.exp(e)))
        for point, t, e in zip(points, log_time, log_energy, strict=True)
    )


def _terms(points: Sequence[KernelPoint]) -> Floats:
    """Cubic in core period, quadratic in memory period, crossed; a clock left to the device has its own term.

    Shape: [points, terms].
    """
    core, core_auto = _periods([point.pair.clock_mhz for point in points])
    memory, memory_auto = _periods([point.pair.memory_mhz for point in points])
    one = np.ones(len(points))
    columns = [one, core, core**2, core**3, memory, memory**2, core * memory, core_auto, memory_auto]
    return np.stack(columns, axis=1)


def _periods(clocks_mhz: Sequence[int | None]) -> tuple[Floats, Floats]:
    """Clock periods against that of the highest clock, in logarithms, and where the device chooses."""
    highest = max((mhz for mhz in clocks_mhz if mhz is not None), default=1)
    period = np.array([0.0 if mhz is None else np.log(highest / mhz) for mhz in clocks_mhz])
    return period, np.array([1.0 if mhz is None else 0.0 for mhz in clocks_mhz])


def _drawn(terms: Floats, values: Floats, noise: Floats) -> Floats:
    """Draw ``values`` towards their least-squares surface by the part of the misfit that is noise."""
    solved, _, rank, _ = np.linalg.lstsq(terms, values, rcond=None)
    spare = len(values) - int(rank)
    if spare < _FEWEST_SPARE or not noise.any():
        return values
    misfit = values - terms @ solved
    explained = float((noise**2).mean()) * spare / float((misfit**2).sum() or np.inf)
    drawn: Floats = values - min(1.0, explained) * misfit
    return drawn
