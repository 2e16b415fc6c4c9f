"""A frontier of plans: for every point, one option (a clock) for every computation of an iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from perseus_ds.device.clock_change import ClockChange, ClockPair
from perseus_ds.errors import PlanError, ProfileError
from perseus_ds.plan.waits import Idle, WaitClock, Waits, idles
from perseus_ds.profile.loads import NotNegative
from perseus_ds.profile.records import Computation, Positive
from perseus_ds.run_directory.paths import RecordFormat
from perseus_ds.schedule import Instruction, Kind, Schedule, dag_of
from perseus_ds.solver.problem import UNLIMITED, Budget, Floats

Choice = NDArray[np.uint8] | NDArray[np.uint16]
"""Positions in options, in the smaller type that holds them."""

# Computations that change their clock while they run: to which option, after how much work.


class Portion(NamedTuple):
    """A share of a computation's work, done at one of its options."""

    option: int
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """All split computations of a PlanSet, column by column and there plan by plan.

    A computation does ``share`` of its work at the option that ``PlanSet.choice`` names, then the rest at
    ``option``. Time and energy are linear in the share, so a split lies on the hull of the options.

    Shape: four vectors of one length.
    """

    plan: NDArray[np.int32]
    column: NDArray[np.int32]
    option: NDArray[np.uint16]
    share: Floats

    @classmethod
    def none(cls) -> Splits:
        empty = np.zeros(0, np.int32)
        return cls(empty, empty, np.zeros(0, np.uint16), np.zeros(0))

    @classmethod
    def of(cls, choice: Choice, rest: Choice, share: Floats) -> Splits:
        """Gather what is split from full matrices.

        Shape: [plans, computations] all three.
        """
        column, plan = np.nonzero(((share < 1.0) & (choice != rest)).T)
        option = rest[plan, column].astype(np.uint16)
        return cls(plan.astype(np.int32), column.astype(np.int32), option, share[plan, column])

    def __len__(self) -> int:
        return len(self.plan)

    def of_plan(self, plan: int) -> dict[int, tuple[int, float]]:
        """Option of the rest and share before it, by column."""
        rows = np.flatnonzero(self.plan == plan)
        pairs = zip(self.option[rows].tolist(), self.share[rows].tolist(), strict=True)
        return dict(zip(self.column[rows].tolist(), pairs, strict=True))


# Ways to run an instruction along a timeline of clocks, as a kernel scheduler gives them to the planner.


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """From this moment of the instruction on, its kernels run at this pair.

    ``offset_s`` counts from the instruction's beginning, as planned; ``launch`` is the first launch.
    """

    launch: int
    offset_s: float
    pair: ClockPair


@dataclass(frozen=True, slots=True)
class ClockSegments:
    """A way to run an instruction, and what it costs; the first step begins with it.

    Raises:
        ProfileError: steps that do not ascend from the beginning.
    """

    time_s: Positive
    energy_j: Positive
    steps: tuple[TimelineStep, ...]

    def __post_init__(self) -> None:
        offsets = [step.offset_s for step in self.steps]
        if not offsets or offsets[0] != 0.0:
            raise ProfileError("a timeline does not begin with its instruction", hint="first offset_s is 0")
        if not all(a < b < self.time_s for a, b in pairwise(offsets)):
            raise ProfileError("the steps of a timeline do not ascend within its time")


@dataclass(frozen=True, slots=True)
class AtDefault:
    """Time and energy at the default pair of clocks."""

    time_s: Positive
    energy_j: Positive


@dataclass(frozen=True, slots=True)
class InstructionTimelines:
    """The ways to run one instruction of a stage, fastest first: its options for a pipeline planner.

    ``default`` is what it takes at the default pair by the same measurement, where that is known.
    ``spared_w`` is what a GPU that waits spares (W) at memory clocks below its own. ``temperature_c`` is
    what all energies were brought to; None: each timeline was measured as warm as it makes the GPU.
    """

    stage: int
    kind: Kind
    timelines: Annotated[tuple[ClockSegments, ...], Field(min_length=1)]
    default: AtDefault | None = None
    spared_w: tuple[tuple[Annotated[int, Field(ge=1)], NotNegative], ...] = ()
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class _TimelinesFile:
    instructions: tuple[InstructionTimelines, ...]


_FILES = RecordFormat("perseus-kernel-timelines", _TimelinesFile, "plan again")


def write_timelines(instructions: tuple[InstructionTimelines, ...], path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    _FILES.write(_TimelinesFile(instructions), path)


def read_timelines(path: Path) -> tuple[InstructionTimelines, ...]:
    """Read the timelines of instructions, ours or those of another kernel scheduler.

    Raises:
        ProfileError: naming the file and what is wrong in it.
    """
    return _FILES.read(path).instructions


# The ways to run one computation: at one clock, or along a timeline of clocks that its kernels are given.

AS_LONG = 1e-6
"""The stretches of a timeline add up to its time, but for this share of it."""


class Segment(NamedTuple):
    """A stretch of a computation at one clock; ``memory_mhz`` None is the device's own memory clock."""

    clock_mhz: int
    memory_mhz: int | None
    duration_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The ways that one computation can run, and what they cost: whole clocks first, then timelines.

    A timeline changes clocks at moments of its own, between kernels: it is not split. ``spared_w`` is what
    a GPU that waits behind one spares (W) by its memory clock. ``margin_s`` is what a clock is planned longer
    for the profile's own errors (`margins_s`); None without errors. ``leaks_alike`` states whether
    timelines are as warm as the whole clocks: at the temperature of default clocks.

    Shape: ``clock_mhz``, ``margin_s`` [clocks], highest first; ``time_s``, ``energy_j`` [clocks + timelines].
    """

    clock_mhz: NDArray[np.int64]
    time_s: Floats
    energy_j: Floats
    timelines: tuple[tuple[Segment, ...], ...] = ()
    spared_w: Mapping[int, float] = field(default_factory=dict)
    margin_s: Floats | None = None
    leaks_alike: bool = False

    def planned_s(self, reserve_pct: float) -> Floats:
        """Durations to plan with: slower than at the fastest clock they are longer by reserve and margin."""
        slower = self.time_s > self.time_s[: len(self.clock_mhz)].min()
        kept_s = np.where(slower, self.time_s * (1.0 + reserve_pct / 100.0), self.time_s)
        if self.margin_s is not None:
            clocks = len(self.clock_mhz)
            kept_s[:clocks] += np.where(slower[:clocks], self.margin_s, 0.0)
        return kept_s

    def cost_j(self, waiting_w: float) -> Floats:
        """Return the effective energy: less what the GPU would use anyway, waiting.

        Source: arXiv 2312.06902, equation 4.
        """
        return self.energy_j - waiting_w * self.time_s

    def segments(self, option: int) -> tuple[Segment, ...]:
        """Return what clocks are held in the order of time, and for how long."""
        clocks = len(self.clock_mhz)
        if option < clocks:
            return (Segment(int(self.clock_mhz[option]), None, float(self.time_s[option])),)
        return self.timelines[option - clocks]

    def mean_mhz(self, option: int) -> float:
        """The core clock, averaged over the duration."""
        segments = self.segments(option)
        lasts_s = sum(one.duration_s for one in segments)
        return sum(one.clock_mhz * one.duration_s for one in segments) / lasts_s

    def with_timelines(self, given: InstructionTimelines) -> Options:
        """Add timelines.

        Where it is known what they were found to take at the default clocks, they are scaled to what was
        measured there. The parts that the job's own measurement sees and the kernels' does not are in all of
        them alike. A clock that was left to the device is the highest.
        """
        times, joules = 1.0, 1.0
        if given.default is not None:
            times = float(self.time_s[0]) / given.default.time_s
            joules = float(self.energy_j[0]) / given.default.energy_j
        highest_mhz = int(self.clock_mhz[0])
        lines = tuple(_segments(one, times, highest_mhz) for one in given.timelines)
        return replace(
            self,
            time_s=np.append(self.time_s, [sum(s.duration_s for s in line) for line in lines]),
            energy_j=np.append(self.energy_j, [one.energy_j * joules for one in given.timelines]),
            timelines=self.timelines + lines,
            spared_w={**self.spared_w, **dict(given.spared_w)},
            leaks_alike=given.temperature_c is not None,
        )


def _segments(timeline: ClockSegments, times: float, highest_mhz: int) -> tuple[Segment, ...]:
    """Steps as stretches; those whose clocks are alike are one."""
    ends_s = [*(step.offset_s for step in timeline.steps[1:]), timeline.time_s]
    segments: list[Segment] = []
    for step, end_s in zip(timeline.steps, ends_s, strict=True):
        clock_mhz = step.pair.clock_mhz or highest_mhz
        one = Segment(clock_mhz, step.pair.memory_mhz, times * (end_s - step.offset_s))
        if segments and segments[-1][:2] == one[:2]:
            one = one._replace(duration_s=segments.pop().duration_s + one.duration_s)
        segments.append(one)
    return tuple(segments)


# How often clocks may change: by GPU and by node, and what a plan makes of it.

GPUS_PER_NODE = 8
"""Ranks of a pipeline that share a driver, where nobody states how many."""


@dataclass(frozen=True, slots=True)
class ChangeBudget:
    """At most so many changes of clock per second; None is without limit.

    The calls of a node's GPUs queue in one driver: ``per_node_per_s`` is for ``gpus_per_node`` ranks of a
    pipeline together, in their order. ``dated``: a GPU may go down once in an iteration and up again, at
    moments that count from its begin, since nothing is seen within.

    Raises:
        PlanError: a value that is not a number, or is negative.
    """

    per_gpu_per_s: float | None = None
    per_node_per_s: float | None = None
    gpus_per_node: int = GPUS_PER_NODE
    dated: bool = False

    def __post_init__(self) -> None:
        for name, least in (("per_gpu_per_s", 0), ("per_node_per_s", 0), ("gpus_per_node", 1)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                hint = f"expected a finite number, {least} or more"
                raise PlanError(f"budget of changes: {name} is {value!r}", hint=hint)

    def __str__(self) -> str:
        """Return what it forbids, as fingerprints state it; empty where that is nothing."""
        said = ", at two moments of an iteration" if self.dated else ""
        if self.per_gpu_per_s is not None:
            said += f", {self.per_gpu_per_s:g} changes per second and GPU"
        if self.per_node_per_s is not None:
            said += f", {self.per_node_per_s:g} per node of {self.gpus_per_node}"
        return said

    @property
    def limits(self) -> bool:
        return self.dated or (self.per_gpu_per_s, self.per_node_per_s) != (None, None)

    def less(self, changes: int, time_s: float) -> ChangeBudget | None:
        """Leave so many changes of every GPU in an iteration to others; None where too few are left."""
        gpu, node, per_s = self.per_gpu_per_s, self.per_node_per_s, changes / time_s
        gpu = None if gpu is None else gpu - per_s
        node = None if node is None else node - self.gpus_per_node * per_s
        left = [limit for limit in (gpu, node) if limit is not None]
        if not left or min(left) * time_s < 1.0:
            return None
        return replace(self, per_gpu_per_s=gpu, per_node_per_s=node)

    def within(self, ranks: int, time_s: float) -> Budget:
        """Return the whole changes that a pipeline's ranks may make in an iteration of that length."""
        gpu, node = (
            UNLIMITED if per_s is None else int(min(per_s * time_s * (1.0 + 1e-12), UNLIMITED))
            for per_s in (self.per_gpu_per_s, self.per_node_per_s)
        )
        return Budget(gpu, node, (np.arange(ranks) // self.gpus_per_node).astype(np.int32))


DATES = 2
"""Changes of one GPU's clock in an iteration that is seen as a whole: down, and up again."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """An iteration with every computation at its highest clock, as planned with the same durations.

    ``blocking_power_w`` is what one waiting GPU takes there.
    """

    iteration_time_s: float
    energy_j: float
    blocking_power_w: float


def baseline_of(
    schedule: Schedule,
    options: Mapping[Computation, Options],
    fixed_s: Mapping[Computation, float],
    blocking_power_w: float,
) -> Baseline:
    """Run everything at its highest clock, with the durations as measured.

    Cost: one pass over the schedule's graph.
    """
    dag, every_s = dag_of(schedule), dict(fixed_s) | {key: own.time_s[0] for key, own in options.items()}
    keys = [(node.stage, node.kind) for node in dag.nodes]
    computed = [key for key in keys if key in options]
    lasts_s = np.array([[every_s[key]] for key in keys])
    iteration_time_s = float(dag.longest(lasts_s, fixed_s)[0])
    working_s = float(sum(every_s[key] for key in computed))
    waiting_j = blocking_power_w * (schedule.ranks * iteration_time_s - working_s)
    energy_j = float(sum(options[key].energy_j[0] for key in computed))
    return Baseline(iteration_time_s, energy_j + waiting_j, blocking_power_w)


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
    iteration_time_s: Floats
    effective_energy_j: Floats
    lower_bound_j: Floats
    effective_bound_j: Floats
    choice: Choice
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
    saving_within_pct: Floats | None = None
    power_ratio: Floats | None = None

    @property
    def blocking_total_w(self) -> float:
        """Power of all ranks waiting at once."""
        return self.blocking_power_w * self.schedule.ranks

    @property
    def energy_j(self) -> Floats:
        """Total energy of one pipeline at each plan's own iteration time."""
        return self.effective_energy_j + self.blocking_total_w * self.iteration_time_s

    @property
    def gap_pct(self) -> Floats:
        """Return how far each plan is at most above what any plan as fast needs, in percent of that."""
        return 100.0 * (self.energy_j / self.lower_bound_j - 1.0)

    @property
    def waiting_gap_pct(self) -> Floats:
        """The same where the iteration lasts as long as the plan for everybody: who is done early waits."""
        waiting_j = self.blocking_total_w * self.iteration_time_s
        return 100.0 * (self.energy_j / (self.effective_bound_j + waiting_j) - 1.0)

    def waiting_j(self, plan: float, until_s: float) -> tuple[float, float]:
        """Return the energies of one pipeline that waits until then, at a plan and at default clocks.

        A plan between two numbers is their mixture.

        Source: arXiv 2312.06902, equation 3.
        """
        first, second = int(plan), math.ceil(plan)
        first_j, second_j = (float(self.effective_energy_j[one]) for one in (first, second))
        planned_j = first_j + (plan - first) * (second_j - first_j) + self.blocking_total_w * until_s
        waited_w = self.baseline.blocking_power_w * self.schedule.ranks
        waited_s = until_s - self.baseline.iteration_time_s
        return planned_j, self.baseline.energy_j + waited_w * waited_s

    def __len__(self) -> int:
        return len(self.iteration_time_s)

    def computations(self) -> list[Instruction]:
        """The columns of ``choice``: all that has a clock in running order, rank after rank."""
        return [i for order in self.schedule.orders for i in order if i.kind.is_computation]

    def computations_of(self, rank: int) -> list[tuple[int, Instruction]]:
        """Column and instruction of all that one rank runs at a chosen clock, in running order."""
        mine = frozenset(self.schedule.orders[rank])
        return [(column, i) for column, i in enumerate(self.computations()) if i in mine]

    def blend(self, column: int, values: Floats) -> Floats:
        """Return what one computation has in every plan of a quantity that is linear in its work.

        Shape: ``values`` [options]; returns [plans].
        """
        found = values[self.choice[:, column]]
        ends = np.array((column, column + 1), dtype=self.splits.column.dtype)  # else all would be converted
        rows = slice(*np.searchsorted(self.splits.column, ends).tolist())
        plan, share = self.splits.plan[rows], self.splits.share[rows]
        found[plan] = share * found[plan] + (1.0 - share) * values[self.splits.option[rows]]
        return found

    def lasts_s(self, of: Callable[[Options], Floats]) -> Floats:
        """Return how long every node of the schedule's graph lasts, by durations ``of`` its options.

        Shape: [nodes, plans].
        """
        nodes, column = dag_of(self.schedule).nodes, {i: at for at, i in enumerate(self.computations())}
        lasts_s = np.empty((len(nodes), len(self)))
        for row, node in enumerate(nodes):
            key = node.stage, node.kind
            if node in column:
                lasts_s[row] = self.blend(column[node], of(self.options[key]))
            else:
                lasts_s[row] = self.fixed_s[key]
        return lasts_s

    def plan(self, index: int) -> FrequencyPlan:
        return FrequencyPlan(self, range(len(self))[index])


@dataclass(frozen=True, slots=True, eq=False)
class FrequencyPlan:
    """A point of the frontier: a clock for every computation."""

    of: PlanSet
    index: int

    @property
    def iteration_time_s(self) -> float:
        return float(self.of.iteration_time_s[self.index])

    @property
    def energy_j(self) -> float:
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
        """Return how much longer the iteration is than at all-maximum clocks."""
        return 100.0 * (self.iteration_time_s / self.of.baseline.iteration_time_s - 1.0)

    def portions(self) -> dict[Instruction, tuple[Portion, ...]]:
        """Return the options of every computation in the order of time, with their shares of its work."""
        split = self.of.splits.of_plan(self.index)
        portions: dict[Instruction, tuple[Portion, ...]] = {}
        chosen = zip(self.of.computations(), self.of.choice[self.index].tolist(), strict=True)
        for column, (instruction, option) in enumerate(chosen):
            rest, share = split.get(column, (option, 1.0))
            first = Portion(option, share)
            portions[instruction] = (first, Portion(rest, 1.0 - share)) if column in split else (first,)
        return portions

    def low_waits(self, rank: int) -> list[Idle]:
        """The idle times of a rank in which the clock goes down."""
        low = self.of.waits.of_plan(self.index)
        every = idles(self.of.schedule, self.of.fixed_s) if low else []
        return [idle for idle in every if idle.rank == rank and idle.column in low]
