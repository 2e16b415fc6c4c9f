"""A frontier of plans: for every point, one option (a clock) for every computation of an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.idle import Idle, idles
from perseus_ds.plan.options import Options
from perseus_ds.plan.splits import Portion, Splits
from perseus_ds.plan.waits import WaitClock, Waits
from perseus_ds.profile import Computation
from perseus_ds.schedule import Instruction, Schedule


@dataclass(frozen=True, slots=True)
class Baseline:
    """One iteration with every computation at its highest clock, as planned with the same durations.

    ``blocking_power_w`` is what one waiting GPU takes there.
    """

    iteration_time_s: float
    energy_j: float
    blocking_power_w: float


@dataclass(frozen=True, slots=True)
class Expected:
    """The saving and the slowdown to expect of a plan on the GPUs that were profiled.

    ``within_pct`` and ``slowdown_within_pct`` are half of the intervals that hold either 95 times in 100.

    Units: percent, of the baseline.
    """

    saving_pct: float
    slowdown_pct: float
    within_pct: float
    slowdown_within_pct: float


@dataclass(frozen=True, slots=True, eq=False)
class PlanSet:
    """Every kept point of one job's frontier, iteration time ascending.

    ``energy_j`` is the total of one pipeline over its own iteration time. ``effective_energy_j`` is what
    remains when blocking power times ranks times iteration time is taken away. ``lower_bound_j`` is a
    certified bound on ``energy_j`` over all plans that take at most as long, each over its own time. It never
    rises with the time. ``effective_bound_j`` is the same for ``effective_energy_j``. Both hold in the model
    of the profile. Iteration times, and with them the bounds, contain the reserve that every stretched
    computation keeps.

    Where there is a ``wait_clock``, the clock goes down in the ``waits`` that are long enough.
    ``blocking_power_w`` is the power there, and what other waits take beyond it is part of the effective
    energy. ``change`` is the change of clock that the plans were made for, ``budget`` how often a clock may
    change.

    ``variation_slowdown_pct`` is how much longer iterations of the fastest plan last on average, with its
    reserve, since durations vary as in the profile. It is None where the profile does not state how.

    ``time_error_pct`` is by how much the profile's durations may be off, three standard errors.
    ``scatter_pct`` is how much an iteration varies as computations did in the profile (None: it does not
    state). ``load_variation`` is by what share the work of an iteration's microbatches varies.

    ``expected`` is what to expect of some of the plans, by index, with as many replicas as the fingerprint
    states.

    ``saving_within_pct`` is half of the interval that holds each plan's saving 95 times in 100, by the errors
    of the profile's energies alone. It is None where the profile has none.

    ``power_ratio`` is the power that a plan is expected to take, against what it states. It is None where
    nobody has worked it out.

    A plan is a timeline of clocks. Every computation starts at the option that ``choice`` names, and where
    ``splits`` has it changes to another after a share of its work.

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
    splits: Splits = field(default_factory=Splits.none)
    waits: Waits = field(default_factory=Waits.none)
    wait_clock: WaitClock | None = None
    change: ClockChange = field(default_factory=ClockChange)
    budget: ChangeBudget = field(default_factory=ChangeBudget)
    reserve_pct: float = 0.0
    variation_slowdown_pct: float | None = None
    time_error_pct: float = 0.0
    scatter_pct: float | None = None
    load_variation: float = 0.0
    expected: Mapping[int, Expected] = field(default_factory=dict)
    saving_within_pct: NDArray[np.float64] | None = None
    power_ratio: NDArray[np.float64] | None = None

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

    def blended(self, column: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """What one computation has in every plan of a quantity that is linear in its work.

        Shape: ``values`` [options]; returns [plans].
        """
        found = values[self.choice[:, column]]
        rows = self.splits.of_column(column)
        plan, share = self.splits.plan[rows], self.splits.share[rows]
        found[plan] = share * found[plan] + (1.0 - share) * values[self.splits.option[rows]]
        return found

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
    def saving_within_pct(self) -> float | None:
        """Half of the interval of the saving; None where the profile has no errors."""
        within = self.of.saving_within_pct
        return None if within is None else float(within[self.index])

    @property
    def slowdown_pct(self) -> float:
        """How much longer the iteration is than at all-maximum clocks."""
        return 100.0 * (self.iteration_time_s / self.of.baseline.iteration_time_s - 1.0)

    def portions(self) -> dict[Instruction, tuple[Portion, ...]]:
        """Return the options of every computation in the order of time, with their shares of its work."""
        split = self.of.splits.of_plan(self.index)
        row = self.of.choice[self.index].tolist()
        portions: dict[Instruction, tuple[Portion, ...]] = {}
        for column, (instruction, option) in enumerate(zip(self.of.computations(), row, strict=True)):
            if column in split:
                rest, share = split[column]
                portions[instruction] = (Portion(option, share), Portion(rest, 1.0 - share))
            else:
                portions[instruction] = (Portion(option, 1.0),)
        return portions

    def low_waits(self, rank: int) -> list[Idle]:
        """The idle times of a rank in which the clock goes down."""
        low = self.of.waits.of_plan(self.index)
        every = idles(self.of.schedule, self.of.fixed_s) if low else []
        return [idle for idle in every if idle.rank == rank and idle.column in low]

    def clocks_of_stage(self, stage: int) -> list[int]:
        """Clocks in MHz of one stage, in running order: one for a computation, more where it changes."""
        portions = self.portions()
        return [
            segment.clock_mhz
            for i in self.of.computations()
            if i.stage == stage
            for portion in portions[i]
            for segment in self.of.options[i.stage, i.kind].segments(portion.option)
        ]
