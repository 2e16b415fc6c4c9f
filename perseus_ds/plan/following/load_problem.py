"""Plan one iteration anew by the loads of its microbatches: the slack between unequal ones is used too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.following.frames import Followed
from perseus_ds.plan.idle import Idle, idles
from perseus_ds.plan.playing.clock_requests import (
    Clocks,
    RankClocks,
    clock_requests,
    opening_clocks,
    requests_of,
)
from perseus_ds.plan.playing.play import Part, Played, play
from perseus_ds.plan.record import FrequencyPlan, PlanSet
from perseus_ds.plan.solving.order import in_order
from perseus_ds.plan.solving.problem import problem_of
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.splits import Portion
from perseus_ds.plan.waits import low_waits
from perseus_ds.profile import Profile
from perseus_ds.schedule import Load
from perseus_ds.solver import Frontier, OptionTable, Problem, solve_frontier, split

Floats = NDArray[np.float64]
_LEAST_FACTOR = 0.05  # of a mean duration: what takes less makes no plan
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class LoadFrontier:
    """The exact frontier of one iteration, whose computations last ``factor`` times their mean durations.

    Shape: ``factor`` [nodes].
    """

    factor: Floats
    frontier: Frontier


class LoadProblem:
    """One pipeline's plan problem, whose durations and energies follow loads.

    ``objective`` is the plan, by index, that is run without this: what follows takes as long as it would at
    the same loads. GPUs change clocks as ``change`` states. ``reserve_pct`` is kept as in `build`, for what
    loads leave open. ``highest_j`` is what every node takes at the highest clock and its mean load.

    Shape: ``highest_j`` [nodes].
    """

    def __init__(
        self,
        plans: PlanSet,
        profile: Profile,
        objective: int,
        *,
        change: ClockChange | None = None,
        reserve_pct: float = 0.0,
    ) -> None:
        self.plans, self.profile, self.reserve_pct = plans, profile, reserve_pct
        self._change = change or plans.change
        self._least_part_s = Switching(self._change, budget=plans.budget).least_part_s
        self.problem = problem_of(profile, plans.schedule, plans.blocking_power_w)
        nodes = self.problem.dag.nodes
        columns = {instruction: column for column, instruction in enumerate(plans.computations())}
        self._computed = np.array([node in columns for node in nodes])
        self._microbatch = np.array([node.microbatch if node in columns else 0 for node in nodes])
        self.fixed_s = np.array([plans.fixed_s.get((node.stage, node.kind), 0.0) for node in nodes])
        self._usual_s = self.fixed_s.copy()
        for row, node in enumerate(nodes):
            if node in columns:
                options = plans.options[node.stage, node.kind]
                self._usual_s[row] = plans.blended(columns[node], options.time_s)[objective]
        self._highest_s, self.highest_j = self.fixed_s.copy(), np.zeros(len(nodes))
        for row in np.flatnonzero(self._computed).tolist():
            options = self.problem.options[nodes[row].stage, nodes[row].kind]
            self._highest_s[row], self.highest_j[row] = options.time_s[0], options.energy_j[0]
        self._then = _begun_at(plans.plan(objective), self._change)
        self._idles = idles(plans.schedule, plans.fixed_s) if plans.wait_clock is not None else []

    def factors(self, loads: Sequence[Load]) -> Floats:
        """How many times its mean duration every computation takes; 1 for other nodes.

        Shape: ``loads`` [microbatches]; returns [nodes].
        """
        known = {
            key: self.profile.relative_durations(*key, loads, counted_at=0) for key in self.problem.options
        }
        nodes = self.problem.dag.nodes
        factor: list[float] = [
            float(known[node.stage, node.kind][node.microbatch]) if computed else 1.0
            for node, computed in zip(nodes, self._computed, strict=True)
        ]
        return np.clip(factor, _LEAST_FACTOR, None)

    def by_size(self, sizes: Floats) -> Floats:
        """The same where all that is done to a microbatch follows its size alike.

        Shape: ``sizes`` [microbatches], of mean 1; returns [nodes].
        """
        return np.where(self._computed, sizes[self._microbatch], 1.0)

    def at_objective_s(self, factor: Floats) -> Floats:
        """How long every node lasts at the objective's plan.

        Shape: [nodes], both.
        """
        return self._usual_s * factor

    def at_highest_s(self, factor: Floats) -> Floats:
        """How long every node lasts at the highest clocks.

        Shape: [nodes], both.
        """
        return self._highest_s * factor

    def lasts_s(self, each_s: Floats) -> float:
        """What an iteration takes whose nodes take so long."""
        return float((self.starts_s(each_s) + each_s).max())

    def starts_s(self, each_s: Floats) -> Floats:
        """When each node starts."""
        return np.array(self.problem.dag.earliest_starts(each_s.tolist(), self.plans.fixed_s))

    def solve(self, factor: Floats) -> LoadFrontier:
        """Solve the relaxed problem of an iteration.

        Raises:
            SolverError: its numbers do not fit the integer scale.
        Cost: 0.03 to 0.06 CPU s for 8 stages and 12 microbatches.
        """
        problem, nodes = self.problem, self.problem.dag.nodes
        tables: dict[tuple[object, ...], OptionTable] = {}
        table_of = []
        for row, node in enumerate(nodes):
            key = (node.stage, node.kind, int(self._microbatch[row]) if self._computed[row] else -1)
            if key not in tables:
                tables[key] = self._table(row, float(factor[row]))
            table_of.append(key)
        number = {key: place for place, key in enumerate(tables)}
        activities = Problem(
            tuple(tables.values()),
            np.array([number[key] for key in table_of], np.int32),
            problem.activities.before,
            problem.activities.after,
            problem.activities.delay_s,
        )
        return LoadFrontier(factor, solve_frontier(activities))

    def within(self, solved: LoadFrontier, limit_s: float, *, on_pace: bool = True) -> Followed:
        """Plan the iteration for the least energy within a time, or its shortest where that is shorter."""
        parts = self._parts_within(solved, limit_s)
        lasts_s = self._lasting(parts)
        starts_s, nodes = self.starts_s(lasts_s), self.problem.dag.nodes
        played = [
            Played(nodes[row], float(starts_s[row]), float(lasts_s[row]), 0.0, parts[row])
            for row in self.problem.columns.tolist()
        ]
        waiting_j = self.plans.blocking_power_w * sum(one.duration_s for one in played)
        energy_j = sum(part.energy_j for one in played for part in one.parts) - waiting_j
        return self._followed(played, float((starts_s + lasts_s).max()), energy_j, on_pace=on_pace)

    def each_s(self, solved: LoadFrontier, limit_s: float) -> Floats:
        """How long every node lasts in that plan.

        Shape: [nodes].
        """
        return self._lasting(self._parts_within(solved, limit_s))

    def _parts_within(self, solved: LoadFrontier, limit_s: float) -> dict[int, tuple[Part, ...]]:
        """What every computation does at which clocks, by its node."""
        frontier = solved.frontier
        wanted_s = np.array([min(max(limit_s, frontier.t_min_s * (1.0 + _ROUNDING)), frontier.t_star_s)])
        plans = split(frontier.whole.problem, frontier, wanted_s, least_part_s=self._least_part_s)
        ordered = in_order(self.problem, plans, ordered=False)
        divided = ordered.splits.of_plan(0)
        parts = {}
        choices = zip(self.problem.columns.tolist(), ordered.choice[0].tolist(), strict=True)
        for column, (row, option) in enumerate(choices):
            rest, share = divided.get(column, (option, 1.0))
            portions = (Portion(option, share), Portion(rest, 1.0 - share))
            parts[row] = self._parts(row, portions[: 1 + (column in divided)], float(solved.factor[row]))
        return parts

    def _lasting(self, parts: Mapping[int, Sequence[Part]]) -> Floats:
        lasts_s = self.fixed_s.copy()
        for row, own in parts.items():
            lasts_s[row] = sum(part.duration_s for part in own)
        return lasts_s

    def _followed(
        self, played: Sequence[Played], time_s: float, energy_j: float, *, on_pace: bool
    ) -> Followed:
        low, clocks = self._low(played, time_s), []
        for rank, columns in enumerate(self.problem.ranks):
            own = played[columns.start : columns.stop]
            requests = requests_of(
                own,
                time_s,
                self._change,
                low=[idle for idle in low if idle.rank == rank],
                wait_clock=self.plans.wait_clock,
                on_pace=on_pace,
                then=self._then[rank],
            )
            clocks.append(RankClocks(own[0].parts[0].clocks, requests))
        first = self.problem.ranks[0]
        ends_s = [one.end_s for one in played[first.start : first.stop]]
        return Followed(time_s, energy_j, ends_s, tuple(clocks))

    def _low(self, played: Sequence[Played], time_s: float) -> list[Idle]:
        """The idle times in which the clock goes down, where the plan knows a clock for that."""
        clock = self.plans.wait_clock
        if clock is None:
            return []
        start_s, end_s = (
            np.array([getattr(one, side) for one in played])[:, None] for side in ("start_s", "end_s")
        )
        found = low_waits(
            self._idles,
            self.problem.ranks,
            start_s=start_s,
            end_s=end_s,
            time_s=np.array([time_s]),
            clock=clock,
        ).of_plan(0)
        return [idle for idle in self._idles if idle.column in found]

    def _table(self, row: int, factor: float) -> OptionTable:
        node = self.problem.dag.nodes[row]
        if not self._computed[row]:
            return OptionTable(np.array([self.fixed_s[row]]), np.array([0.0]))
        options = self.problem.options[node.stage, node.kind]
        cost_j = options.energy_j - self.plans.blocking_power_w * options.time_s
        return OptionTable(factor * options.planned_s(self.reserve_pct), factor * cost_j)

    def _parts(self, row: int, portions: Sequence[Portion], factor: float) -> tuple[Part, ...]:
        node = self.problem.dag.nodes[row]
        options = self.problem.options[node.stage, node.kind]
        return tuple(
            Part(
                int(options.clock_mhz[option]),
                share * factor * float(options.time_s[option]),
                share * factor * float(options.energy_j[option]),
            )
            for option, share in portions
        )


def _begun_at(plan: FrequencyPlan, change: ClockChange) -> list[Clocks]:
    """The clocks that each rank begins an iteration of a plan at, as the next one will."""
    played = play(plan)
    asked = (clock_requests(plan, rank, change, played=played) for rank in range(plan.of.schedule.ranks))
    return [opening_clocks(plan, rank, requests) for rank, requests in enumerate(asked)]


def why_not(plans: PlanSet, profile: Profile | None, *, splits: bool) -> str | None:
    """Return why plans of single iterations cannot follow their loads; None where they can."""
    if profile is None or not profile.loads:
        return "the profile does not record how durations follow loads"
    if plans.budget.limits:
        return "clocks may change only so often, and such plans take longer to make than an iteration lasts"
    if any(options.timelines for options in plans.options.values()):
        return "instructions run along timelines of their kernels"
    return None if splits else "computations do not change clocks while they run (split is never)"
