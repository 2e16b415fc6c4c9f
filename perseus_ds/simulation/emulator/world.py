"""What stays the same while a job is emulated: programs, tables, machines, and what plans ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanSet
from perseus_ds.profile import Computation, Profile, smoothed
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator.cluster import ClusterShape
from perseus_ds.simulation.emulator.lengths import EmulatedLoads
from perseus_ds.simulation.emulator.program import JobProgram, job_program
from perseus_ds.simulation.emulator.records import Change, Floats, Ints, PlannedRequests, Tables
from perseus_ds.simulation.emulator.requests import PlanRequests, packed, requests_of, steady

Asking = tuple[int, bool]
"""A plan, and whether it is asked for as on pace: lower clocks ahead."""

DEFAULT_CLOCKS = -1
"""In place of a plan: the highest clock throughout."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How real an emulated job is.

    ``noise`` is the relative standard deviation of one computation. ``work`` multiplies all computations of
    an iteration, over and over (batches of other lengths). An iteration in ``microbatches`` has another
    number of them and runs at default clocks, as in a job. ``loads`` are what microbatches work on, each its
    own. ``trace_bin_s`` 0 keeps no power trace.
    """

    noise: float = 0.0
    seed: int = 0
    work: Sequence[float] = (1.0,)
    microbatches: Mapping[int, int] = field(default_factory=dict)
    loads: EmulatedLoads | None = None
    trace_bin_s: float = 0.0
    threads: int = 2


class World:
    """What stays the same in a job: programs, tables, machines, what plans ask for."""

    def __init__(
        self, plans: PlanSet, profile: Profile, cluster: ClusterShape, conditions: Conditions
    ) -> None:
        if any(options.timelines for options in plans.options.values()):
            raise PlanError(
                "the plan has timelines of kernels: an emulated GPU knows computations at whole clocks",
                hint="emulate a plan made without --timelines",
            )
        self.plans, self.cluster, self.conditions = plans, cluster, conditions
        self._profile = profile
        self.job = job_program(plans.schedule, plans.fixed_s)
        waiting_w = _as_planned_w(plans) if cluster.waiting_w is None else cluster.waiting_w
        planned_mhz = {int(mhz) for options in plans.options.values() for mhz in options.clock_mhz}
        if plans.wait_clock is not None:
            planned_mhz.add(plans.wait_clock.clock_mhz)
        self.tables = tables_of(profile, self.job.rows, waiting_w=waiting_w, clocks_mhz=planned_mhz)
        self.highest_mhz = max(profile.clocks_mhz)
        change = cluster.change
        self.change = Change(
            change.call_s, change.settle_up_s, change.settle_down_s, change.queue_s, change.stall_s
        )
        self._asked: dict[Asking, PlanRequests] = {}
        self._packed: dict[tuple[Asking, ...], PlannedRequests] = {}
        self._others: dict[int, JobProgram] = {}

    def requests(self, plans: tuple[Asking, ...]) -> PlannedRequests:
        """Return what some plans ask for, in this order."""
        if plans not in self._packed:
            self._packed[plans] = packed([self._of(plan) for plan in plans], self.job, self.tables.clock_mhz)
        return self._packed[plans]

    def load_factors(self, job: JobProgram, iteration: int) -> Floats | float:
        """Return how many times its mean each computation of an iteration takes, for its load.

        Shape: [pipelines, nodes].
        """
        loads = self.conditions.loads
        if loads is None:
            return 1.0
        return loads.factors(self._profile, job.nodes, iteration, pipelines=self.cluster.pipelines)

    def other(self, microbatches: int) -> tuple[JobProgram, PlannedRequests]:
        """Return a batch of another size, at default clocks."""
        if microbatches not in self._others:
            name, stages = self.plans.schedule.name, self.plans.schedule.stages
            schedule = textbook(name, stages=stages, microbatches=microbatches)
            self._others[microbatches] = job_program(schedule, self.plans.fixed_s)
        job = self._others[microbatches]
        return job, packed([steady(self.highest_mhz, job)], job, self.tables.clock_mhz)

    def _of(self, asking: Asking) -> PlanRequests:
        plan, on_pace = asking
        if plan == DEFAULT_CLOCKS:
            return steady(self.highest_mhz, self.job)
        if asking not in self._asked:
            reckoned = self.cluster.reckoned or self.cluster.change
            self._asked[asking] = requests_of(self.plans, plan, self.job, change=reckoned, on_pace=on_pace)
        return self._asked[asking]


def _as_planned_w(plans: PlanSet) -> Mapping[int, float] | float:
    """Power of a waiting GPU (W) as the plans know it: by clock where some of their waits go down."""
    clock = plans.wait_clock
    if clock is None:
        return plans.blocking_power_w
    highest_mhz = max(int(options.clock_mhz[0]) for options in plans.options.values())
    return {highest_mhz: clock.high_power_w, clock.clock_mhz: clock.power_w}


def tables_of(
    profile: Profile,
    rows: Sequence[Computation],
    *,
    waiting_w: Mapping[int, float] | float,
    clocks_mhz: Iterable[int] = (),
) -> Tables:
    """Lay the profile out on one grid of clocks: all that were measured, and ``clocks_mhz``.

    Points are those that plans believe (`smoothed`); between clocks time and power are interpolated. Below
    the lowest one the work is taken to be bound by the clock: time with 1/f, power with f. That holds for a
    change that is late and for a clock for waiting. Waiting power is a number, or given by clock,
    interpolated, flat beyond its ends.

    Raises:
        IncompleteProfileError: a computation was not measured.
    """
    waiting = waiting_w if isinstance(waiting_w, Mapping) else {}
    believed = smoothed(profile)
    clocks = np.array(sorted({*believed.clocks_mhz, *clocks_mhz, *waiting}), dtype=np.int64)
    filled = [_row(believed, row, clocks) for row in rows]
    return Tables(
        clock_mhz=clocks,
        waiting_w=_waiting_w(waiting_w, clocks),
        time_s=np.array([time_s for time_s, _ in filled]),
        power_w=np.array([power_w for _, power_w in filled]),
    )


def _row(profile: Profile, row: Computation, clocks: Ints) -> tuple[Floats, Floats]:
    points = profile.of(*row)[::-1]
    measured = np.array([point.clock_mhz for point in points], dtype=np.float64)
    time_s = np.array([point.time_s for point in points])
    power_w = np.array([point.energy_j / point.time_s for point in points])
    share = np.minimum(1.0, clocks / measured[0])
    return np.interp(clocks, measured, time_s) / share, np.interp(clocks, measured, power_w) * share


def _waiting_w(waiting_w: Mapping[int, float] | float, clocks: Ints) -> Floats:
    if not isinstance(waiting_w, Mapping):
        return np.full(len(clocks), float(waiting_w))
    known = sorted(waiting_w.items())
    watts: Floats = np.interp(clocks, [clock for clock, _ in known], [power for _, power in known])
    return watts
