"""A frontier of plans: for every point, one option (a clock) for every computation of an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import Computation
from perseus_ds.schedule import Instruction, Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The clocks that one computation can run at, and what they cost.

    Shape: three vectors of equal length, highest clock first.
    """

    clock_mhz: NDArray[np.int64]
    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]

    def planned_s(self, reserve_pct: float) -> NDArray[np.float64]:
        """Durations to plan with: all but the shortest are taken as that much longer."""
        slower = self.time_s > self.time_s.min()
        return np.where(slower, self.time_s * (1.0 + reserve_pct / 100.0), self.time_s)


@dataclass(frozen=True, slots=True)
class Baseline:
    """One iteration with every computation at its highest clock, as planned with the same durations."""

    iteration_time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True, eq=False)
class PlanSet:
    """Every kept point of one job's frontier, iteration time ascending.

    ``energy_j`` is the total of one pipeline over its own iteration time, ``effective_energy_j`` what
    remains when blocking power times ranks times iteration time is taken away, ``lower_bound_j`` a
    certified bound on ``energy_j`` over all plans that take at most as long, each over its own time: it
    never rises with the time. ``effective_bound_j`` is the same for ``effective_energy_j``. Both hold in
    the model of the profile. Iteration times, and with them the bounds, contain the reserve that every
    stretched computation keeps.

    ``time_error_pct`` is by how much the profile's durations may be off, three standard errors.

    Shape: vectors [plans]; ``choice`` [plans, computations], positions in the computation's Options.
    Source: arXiv 2312.06902, equation 4.
    """

    fingerprint: Mapping[str, str]
    schedule: Schedule
    blocking_power_w: float
    options: Mapping[Computation, Options]
    fixed_s: Mapping[Computation, float]
    iteration_time_s: NDArray[np.float64]
    effective_energy_j: NDArray[np.float64]
    lower_bound_j: NDArray[np.float64]
    effective_bound_j: NDArray[np.float64]
    choice: NDArray[np.uint8] | NDArray[np.uint16]
    baseline: Baseline
    t_min_s: float
    t_star_s: float
    solve_time_s: float
    reserve_pct: float = 0.0
    time_error_pct: float = 0.0

    @property
    def blocking_total_w(self) -> float:
        """Power of all ranks waiting at once."""
        return self.blocking_power_w * self.schedule.ranks

    @property
    def energy_j(self) -> NDArray[np.float64]:
        """Total energy of one pipeline at each plan's own iteration time."""
        return self.effective_energy_j + self.blocking_total_w * self.iteration_time_s

    @property
    def gap_pct(self) -> NDArray[np.float64]:
        """How far each plan is at most above what any plan as fast needs, in percent of that."""
        return 100.0 * (self.energy_j / self.lower_bound_j - 1.0)

    @property
    def waiting_gap_pct(self) -> NDArray[np.float64]:
        """The same where the iteration lasts as long as the plan for everybody: who is done early waits."""
        waiting_j = self.blocking_total_w * self.iteration_time_s
        return 100.0 * (self.energy_j / (self.effective_bound_j + waiting_j) - 1.0)

    def __len__(self) -> int:
        return len(self.iteration_time_s)

    def computations(self) -> list[Instruction]:
        """The columns of ``choice``: all that has a clock in running order, rank after rank."""
        return [i for order in self.schedule.orders for i in order if i.kind.is_computation]

    def computations_of(self, rank: int) -> list[tuple[int, Instruction]]:
        """Column and instruction of all that one rank runs at a chosen clock, in running order."""
        mine = frozenset(self.schedule.orders[rank])
        return [(column, i) for column, i in enumerate(self.computations()) if i in mine]

    def plan(self, index: int) -> FrequencyPlan:
        """Return one point of the frontier."""
        return FrequencyPlan(self, range(len(self))[index])


@dataclass(frozen=True, slots=True, eq=False)
class FrequencyPlan:
    """One point of the frontier: a clock for every computation."""

    of: PlanSet
    index: int

    @property
    def iteration_time_s(self) -> float:
        """Planned duration of one iteration."""
        return float(self.of.iteration_time_s[self.index])

    @property
    def energy_j(self) -> float:
        """Planned total energy of one pipeline over one iteration."""
        return float(self.of.energy_j[self.index])

    @property
    def saving_pct(self) -> float:
        """Energy saved against all-maximum clocks, each at its own iteration time."""
        return 100.0 * (1.0 - self.energy_j / self.of.baseline.energy_j)

    @property
    def slowdown_pct(self) -> float:
        """How much longer the iteration is than at all-maximum clocks."""
        return 100.0 * (self.iteration_time_s / self.of.baseline.iteration_time_s - 1.0)

    def choices(self) -> dict[Instruction, int]:
        """Return the chosen option of every computation."""
        row = self.of.choice[self.index]
        return {i: int(option) for i, option in zip(self.of.computations(), row, strict=True)}

    def clocks_of_stage(self, stage: int) -> list[int]:
        """Clocks in MHz of one stage's computations, in running order."""
        choices = self.choices()
        return [
            int(self.of.options[i.stage, i.kind].clock_mhz[choices[i]])
            for i in self.of.computations()
            if i.stage == stage
        ]
