"""The planning problem: a schedule's graph with a table of measured options for every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan.record import ChangeBudget, Choice, InstructionTimelines, Options, Splits
from perseus_ds.plan.waits import columns_of
from perseus_ds.profile import Profile, smooth
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Dag, Schedule, dag_of
from perseus_ds.solver.problem import Floats, OptionTable, Plans, Problem


@dataclass(frozen=True, slots=True, eq=False)
class PlanProblem:
    """A schedule's graph, the options of its computations, and the same as the solver numbers it.

    ``activities`` has a table of effective energies for every node of ``dag``, with ``waiting_w`` what one
    GPU takes that waits. ``columns`` are the nodes of all that has a clock, in running order, rank after
    rank; ``ranks`` which of these columns each rank has. ``variation`` is by what share each computation
    varies; None where the profile does not state it of all. ``load_variation`` is by what share microbatches
    vary for their loads, alike on all stages.

    Shape: ``columns`` [computations].
    """

    schedule: Schedule
    dag: Dag
    activities: Problem
    options: Mapping[Computation, Options]
    fixed_s: Mapping[Computation, float]
    columns: NDArray[np.int32]
    ranks: tuple[range, ...]
    waiting_w: float
    variation: Mapping[Computation, float] | None
    load_variation: float = 0.0
    reserve_pct: float = 0.0

    @property
    def total_w(self) -> float:
        return self.waiting_w * self.schedule.ranks

    def with_reserve(self, reserve_pct: float) -> PlanProblem:
        """Take every computation below its fastest clock as that much longer."""
        return self._of(self.options, reserve_pct)

    def with_margins(self, margins_s: Mapping[Computation, Floats]) -> PlanProblem:
        """Take durations as longer by a margin for the profile's errors; with none as they are.

        Shape: ``margins_s`` [clocks] each.
        """
        options = {key: replace(own, margin_s=margins_s.get(key)) for key, own in self.options.items()}
        return self._of(options, self.reserve_pct)

    def with_timelines(self, timelines: Sequence[InstructionTimelines]) -> PlanProblem:
        """Add further ways to run instructions.

        Raises:
            PlanError: timelines of an instruction that is not planned.
        """
        options = dict(self.options)
        for one in timelines:
            key = one.stage, one.kind
            if key not in options:
                raise PlanError(
                    f"there are timelines for the {one.kind.name.lower()} of stage {one.stage}, which this"
                    " job does not run",
                    hint="give the timelines of this job's kernels",
                )
            options[key] = options[key].with_timelines(one)
        return self._of(options, self.reserve_pct)

    def _of(self, options: Mapping[Computation, Options], reserve_pct: float) -> PlanProblem:
        tables = _tables(options, self.fixed_s, self.waiting_w, reserve_pct)
        activities = replace(self.activities, tables=tables)
        return replace(self, options=options, activities=activities, reserve_pct=reserve_pct)


def problem_of(profile: Profile, schedule: Schedule, waiting_w: float) -> PlanProblem:
    """Look every node's options up, and number what the solver numbers; without reserve.

    Points are those behind the profile's (`smooth`).

    Raises:
        IncompleteProfileError: a stage of the schedule was not measured.
    """
    dag, profile = dag_of(schedule), smooth(profile)
    options: dict[Computation, Options] = {}
    fixed_s: dict[Computation, float] = {}
    for key, kind in (((node.stage, node.kind), node.kind) for node in dag.nodes):
        if not kind.is_computation:
            fixed_s[key] = profile.fixed_s.get(key, 0.0)
        elif key not in options:
            points = profile.of(*key)
            rows = ((p.clock_mhz, p.time_s, p.energy_j) for p in points)
            clock_mhz, time_s, energy_j = zip(*rows, strict=True)
            options[key] = Options(np.array(clock_mhz), np.array(time_s), np.array(energy_j))
    fixed_s |= {send: profile.fixed_s.get(send, 0.0) for send in dag.buffered.values()}
    position = {node: index for index, node in enumerate(dag.nodes)}
    number = {key: index for index, key in enumerate([*options, *fixed_s])}
    before, after = np.array(dag.edges, dtype=np.int32).reshape(-1, 2).T
    activities = Problem(
        tables=_tables(options, fixed_s, waiting_w, 0.0),
        table_of=np.array([number[n.stage, n.kind] for n in dag.nodes], dtype=np.int32),
        before=before,
        after=after,
        delay_s=np.array(dag.delays_s(fixed_s)),
    )
    computed = [i for order in schedule.orders for i in order if i.kind.is_computation]
    return PlanProblem(
        schedule,
        dag,
        activities,
        options,
        fixed_s,
        columns=np.array([position[i] for i in computed], np.int32),
        ranks=tuple(columns_of(schedule)),
        waiting_w=waiting_w,
        variation=profile.variation(),
        load_variation=profile.size_variation,
    )


def _tables(
    options: Mapping[Computation, Options],
    fixed_s: Mapping[Computation, float],
    waiting_w: float,
    reserve_pct: float,
) -> tuple[OptionTable, ...]:
    computed = [OptionTable(own.planned_s(reserve_pct), own.cost_j(waiting_w)) for own in options.values()]
    return (*computed, *(OptionTable(np.array([time_s]), np.array([0.0])) for time_s in fixed_s.values()))


# What planning has to know of clock changes: what one costs, and how many are wanted.

Split = Literal["automatic", "never"]
Wait = Literal["automatic", "never"]


@dataclass(frozen=True, slots=True)
class Switching:
    """Latency of a change of clock, and what a plan may do with changes.

    ``split`` "automatic" lets a computation change its clock while it runs, "never" keeps one clock for each.
    No part of one is shorter than a call takes. ``waits`` "automatic" lowers the
    clock in waits that are long enough, where the power of waiting is known by clock. ``budget`` states how
    often a clock may change.
    """

    change: ClockChange = field(default_factory=ClockChange)
    split: Split = "automatic"
    waits: Wait = "never"
    budget: ChangeBudget = field(default_factory=ChangeBudget)

    @classmethod
    def of(cls, profile: Profile) -> Switching:
        """Take the change as the profile's GPUs were calibrated; a change that was not measured is free."""
        found = profile.calibration
        if found is None or found.call_s is None or found.up_s is None or found.down_s is None:
            return cls()
        up_s, down_s = (max(0.0, latency_s - found.call_s) for latency_s in (found.up_s, found.down_s))
        return cls(ClockChange(found.call_s, up_s, down_s))

    @property
    def least_part_s(self) -> float:
        """The shortest part of a split computation."""
        return self.change.call_s + self.change.stall_s


FREE = Switching()
"""Changes that cost nothing."""

# Solved plans in running order, the parts of split computations in the order of time.

Matrix = NDArray[np.int64]


def in_order(problem: PlanProblem, plans: Plans, *, ordered: bool) -> tuple[Choice, Splits]:
    """Return what computations begin with in running order, [plans, computations], and how they go on.

    ``ordered``: what ``choice`` names comes before ``other`` in time already. Else clocks change least often;
    but where loads vary the slower part comes first: what a long microbatch has more is done at the faster
    clock then.
    """
    columns = problem.columns
    first, rest, share = plans.choice[:, columns], plans.other[:, columns], plans.share[:, columns]
    turned = np.zeros(share.shape, np.bool_) if ordered else share < 1.0
    if not ordered and not problem.load_variation:
        fast_mhz, slow_mhz = (clocks_mhz(problem, options) for options in (first, rest))
        turned &= slow_first(problem.ranks, fast_mhz, slow_mhz)
    return turned_splits(turned, first, rest, share)


def turned_splits(
    turned: NDArray[np.bool_], first: NDArray[Any], rest: NDArray[Any], share: Floats
) -> tuple[Choice, Splits]:
    """Let the rest come first where it is ``turned``.

    Shape: all [plans, computations].
    """
    choice, after = narrow(np.where(turned, rest, first)), narrow(np.where(turned, first, rest))
    return choice, Splits.of(choice, after, np.where(turned, 1.0 - share, share))


def clocks_mhz(problem: PlanProblem, options: NDArray[np.int32]) -> Matrix:
    """Clocks of options of all computations.

    Shape: [plans, computations], both.
    """
    nodes = problem.dag.nodes
    begins = {
        key: np.array([own.segments(option)[0].clock_mhz for option in range(len(own.time_s))])
        for key, own in problem.options.items()
    }
    own = [begins[nodes[c].stage, nodes[c].kind] for c in problem.columns]
    return np.column_stack([clock[options[:, column]] for column, clock in enumerate(own)])


def slow_first(ranks: Sequence[Sequence[int]], fast_mhz: Matrix, slow_mhz: Matrix) -> NDArray[np.bool_]:
    """Return where the slower part should come first, so that clocks change least often.

    Elsewhere the order makes no difference or is the other. There are two ways through every computation: 0
    begins fast and ends slow, 1 the other way round. Each rank's computations are passed once, both ways of
    each kept with the fewest changes up to it.

    Shape: ``ranks`` columns of each rank in running order; the others [plans, computations], also returned.
    Cost: linear in plans times computations.
    """
    turned = np.zeros(fast_mhz.shape, dtype=np.bool_)
    plans = np.arange(len(fast_mhz))
    for columns in ranks:
        changes, came = np.zeros((2, len(plans)), np.int64), list[Matrix]()
        ended = np.zeros((2, len(plans)), np.int64)
        for place, column in enumerate(columns):
            begins = np.array([fast_mhz[:, column], slow_mhz[:, column]])
            paths = changes[None] + (begins[:, None] != ended[None]) * (place > 0)
            came.append(paths.argmin(axis=1))
            changes, ended = paths.min(axis=1), begins[::-1]
        way = changes.argmin(axis=0)
        for place in range(len(columns) - 1, -1, -1):
            turned[:, columns[place]] = way == 1
            way = came[place][way, plans]
    return turned


def narrow(options: NDArray[Any]) -> Choice:
    """Positions of options in the smallest type that holds them."""
    if options.max(initial=0) <= np.iinfo(np.uint8).max:
        return options.astype(np.uint8)
    return options.astype(np.uint16)
