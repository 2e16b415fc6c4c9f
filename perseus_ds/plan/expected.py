"""Expected time and saving of a plan when clocks change late and durations vary, each with its error.

`expected` plays a plan and its baseline, iteration after iteration (`PlanPlayer`): the figure to hold a
measurement against. `profile_error` states what a profile's errors cost the plan that loses no time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan.clock_requests import (
    OPENING,
    ClockRequest,
    Clocks,
    Played,
    clock_requests,
    guarding_j,
    opening_clocks,
    play,
)
from perseus_ds.plan.record import Expected, FrequencyPlan, Options, PlanSet, Portion
from perseus_ds.plan.reserve import drawn_factors
from perseus_ds.plan.select import select
from perseus_ds.profile import Profile, smooth
from perseus_ds.profile.curves import ENOUGH_POINTS, SCATTER_HARMLESS, sampled_ratios, scatters, time_factor
from perseus_ds.profile.records import Computation
from perseus_ds.schedule import Dag, Instruction, dag_of
from perseus_ds.solver.problem import Floats

LEFT_OUT = 0.0005
"""Standard error of the saving for all that this model leaves out: found on jobs whose truth is known."""
LEFT_OUT_OF_TIME = 0.0004
"""The same of the iteration time."""
TWICE = 1.96  # standard errors on either side hold the true value 95 times in 100
HARMLESS_PCT = 0.03
"""Errors of time that small cost no time worth a line."""
WORTH_SAYING_PCT = 0.1
"""Less time than that is not worth a line."""
_MOST_NODES = 30_000  # played in all: about half a second
_LEAST_DRAWS, _MOST_DRAWS = 6, 200
_LEAST_ERROR_DRAWS, _MOST_ERROR_DRAWS = 20, 200
_MOST_ERROR_NUMBERS = 250_000  # nodes times draws, for each of four runs
_LEAST_POINTS, _MOST_POINTS = 2, 12


def expected(
    plan: FrequencyPlan,
    profile: Profile,
    change: ClockChange,
    *,
    variation: Mapping[Computation, float] | None = None,
    replicas: int = 1,
) -> Expected:
    """Play the plan and its baseline, iteration after iteration, with durations that vary.

    The plan itself counts every wait at one power, every computation at its own clock and every duration as
    its mean. Really a lower clock comes into force when its computation has begun, and a GPU waits at the
    clock of what follows. An iteration lasts as long as the longest of paths that vary: the reserve lets a
    part of that through. A GPU that runs slower is cooler and leaks less (``profile.leakage``).
    ``variation`` is by what share each computation's duration varies; ``replicas`` wait for each other at
    the end of an iteration.

    The profile's own errors of time make an iteration longer too: of paths that are alike as profiled one
    really is the longest. They are drawn as the durations are.

    The intervals come from the profile's errors, how many iterations were drawn, and what is left out.

    Cost: a pass over the schedule's graph for every draw, 30 000 nodes in all.
    """
    dag, profile = dag_of(plan.of.schedule), smooth(profile)
    variation = variation or {}
    varies = any(variation.get((node.stage, node.kind)) for node in dag.nodes)
    draws = int(np.clip(_MOST_NODES // len(dag.nodes), _LEAST_DRAWS, _MOST_DRAWS)) if varies else 1
    factor = drawn_factors(dag, variation, profile.size_variation, draws)
    errors = time_errors(plan, profile, dag, factor, variation)
    before, after = _play_baseline(plan, dag, factor), _play_plan(plan, profile, change, dag, factor)
    before_s, before_j = before.with_replicas(replicas, errors.before_s)
    after_s, after_j = after.with_replicas(replicas, errors.after_s)
    options = plan.of.options
    is_cool = any(  # kernels' clocks that were measured cool, each by itself
        own[-1].option >= len(options[i.stage, i.kind].clock_mhz) and not options[i.stage, i.kind].leaks_alike
        for i, own in plan.portions().items()
    )
    whole_j, leakage = float(before_j.sum()), 0.0 if is_cool else profile.leakage
    spared_w = leakage * (before_j / before_s - after_j / after_s) / (1.0 - leakage)  # cooler: leaks less
    spared_j = after_s * float(spared_w.sum())
    saving = 1.0 - (float(after_j.sum()) - spared_j) / whole_j
    leaked = spared_j / whole_j * profile.leakage_se / leakage if leakage else 0.0
    of_energy = float(_errors(plan.of, np.array([plan.index]), profile, whole_j, np.array([1.0 - saving]))[0])
    ratio = after.time_s / before.time_s
    drawn = float(ratio.std(ddof=1)) / math.sqrt(len(ratio)) if len(ratio) > 1 else 0.0
    return Expected(
        saving_pct=100.0 * saving,
        slowdown_pct=100.0 * (after_s / before_s - 1.0),
        within_pct=100.0 * TWICE * math.hypot(of_energy, leaked, LEFT_OUT),
        slowdown_within_pct=100.0 * TWICE * math.hypot(errors.ratio, drawn, LEFT_OUT_OF_TIME),
    )


def with_power_ratio(plans: PlanSet, profile: Profile, change: ClockChange) -> PlanSet:
    """Add expected by planned power of every plan, for power caps; of some, and between them by a line.

    Cost: a pass over the schedule's graph for each of these, 30 000 nodes in all; nothing of a profile
    without a power of waiting. Not for the training's own thread.
    """
    if not profile.blocking_w:
        return plans
    profile = smooth(profile)  # once: it takes longer than all that follows
    points = int(np.clip(_MOST_NODES // len(dag_of(plans.schedule).nodes), _LEAST_POINTS, _MOST_POINTS))
    baseline, ratios = plans.baseline, {}
    for index in sorted(set(np.linspace(0, len(plans) - 1, points).astype(int).tolist())):
        found = expected(plans.plan(index), profile, change)
        energy_j = baseline.energy_j * (1.0 - found.saving_pct / 100.0)
        time_s = baseline.iteration_time_s * (1.0 + found.slowdown_pct / 100.0)
        planned_w = plans.effective_energy_j[index] / time_s + plans.blocking_total_w
        ratios[index] = float(energy_j / time_s / planned_w)
    return replace(plans, power_ratio=np.interp(np.arange(len(plans)), [*ratios], [*ratios.values()]))


class _PlayedIterations(NamedTuple):
    """Durations of one side's iterations, the mean energy of each GPU in one, and its power as it waits.

    Shape: ``time_s`` [draws]; ``energy_j``, ``waiting_w`` [ranks].
    """

    time_s: Floats
    energy_j: Floats
    waiting_w: Floats

    def with_replicas(self, replicas: int, longer_s: float) -> tuple[float, Floats]:
        """Return time and energies of an iteration ``longer_s`` longer than the slowest replica's."""
        ordered, count = np.sort(self.time_s), len(self.time_s)
        slowest = np.diff((np.arange(count + 1) / count) ** replicas)
        time_s = float(slowest @ ordered) + longer_s
        return time_s, self.energy_j + (time_s - float(ordered.mean())) * self.waiting_w


def _play_baseline(plan: FrequencyPlan, dag: Dag, factor: Floats) -> _PlayedIterations:
    """Run everything at its highest clock; what waits takes the power of waiting there."""
    plans, waiting_w = plan.of, plan.of.baseline.blocking_power_w
    rank_of = plans.schedule.rank_of_stages()
    lasts_s = _lasts_s(plan, dag, dict.fromkeys(plans.computations(), (Portion(0, 1.0),)), {}, factor)
    time_s = dag.longest(lasts_s, plans.fixed_s)
    energy_j = np.full(plans.schedule.ranks, waiting_w * float(time_s.mean()))
    for row, node in enumerate(dag.nodes):
        if node.kind.is_computation:
            takes_j = plans.options[node.stage, node.kind].energy_j[0] * factor[row]
            energy_j[rank_of[node.stage]] += float((takes_j - waiting_w * lasts_s[row]).mean())
    return _PlayedIterations(time_s, energy_j, np.full(plans.schedule.ranks, waiting_w))


def _play_plan(
    plan: FrequencyPlan, profile: Profile, change: ClockChange, dag: Dag, factor: Floats
) -> _PlayedIterations:
    """Run the plan again and again; the first iteration brings every clock to where one leaves it."""
    player = PlanPlayer(plan, profile.blocking_w, change, dag)
    ends_s, takes_j = [], []
    for drawn in (np.ones(len(dag.nodes)), *factor.T):
        player.iterate(drawn)
        ends_s.append(player.now_s)
        takes_j.append(np.array([gpu.energy_j for gpu in player.gpus]))
    waiting_w = np.array([gpu.waiting_power_w for gpu in player.gpus])
    return _PlayedIterations(np.diff(ends_s), (takes_j[-1] - takes_j[0]) / factor.shape[1], waiting_w)


class PlanPlayer:
    """A pipeline that runs a plan: when each computation really begins, and at what clocks."""

    def __init__(
        self, plan: FrequencyPlan, waiting_w: Mapping[int, float], change: ClockChange, dag: Dag
    ) -> None:
        plans, played = plan.of, play(plan)
        self._options, self._fixed_s, self._dag = plans.options, plans.fixed_s, dag
        spared = {mhz: watts for one in plans.options.values() for mhz, watts in one.spared_w.items()}
        self._played = {one.instruction: one for one in played}
        for one in played:
            if one.kernels:  # its guard against durations that vary takes energy as well
                options = plans.options[one.instruction.stage, one.instruction.kind]
                guarded_j = one.energy_j + guarding_j(one, options, spared)
                self._played[one.instruction] = replace(one, energy_j=guarded_j)
        self._order = dag.topological()
        self._before: list[list[tuple[int, float]]] = [[] for _ in dag.nodes]
        for (first, then), delay_s in zip(dag.edges, dag.delays_s(plans.fixed_s), strict=True):
            self._before[then].append((first, delay_s))
        rank_of = plans.schedule.rank_of_stages()
        self._rank = [rank_of[node.stage] for node in dag.nodes]
        self.gpus: list[_Gpu] = []
        for rank in range(plans.schedule.ranks):
            requests = clock_requests(plan, rank, change, played=played)
            opening = opening_clocks(plan, rank, requests)
            self.gpus.append(_Gpu(opening, requests, change, waiting_w, spared))
        self.now_s = 0.0

    def iterate(self, factor: Floats) -> None:
        """Run one iteration; all ranks end it together.

        Shape: ``factor`` [nodes].
        """
        for gpu in self.gpus:
            gpu.begin_iteration()
        ends_s, begin_s = np.zeros(len(self._order)), self.now_s
        for row in self._order:
            node = self._dag.nodes[row]
            ready_s = max([begin_s, *(ends_s[one] + delay_s for one, delay_s in self._before[row])])
            if node.kind.is_computation:
                gpu, options = self.gpus[self._rank[row]], self._options[node.stage, node.kind]
                ends_s[row] = gpu.compute(self._played[node], options, ready_s, float(factor[row]))
            else:
                ends_s[row] = ready_s + self._fixed_s[node.stage, node.kind]
        self.now_s = max(self.now_s, float(ends_s.max()))
        for gpu in self.gpus:
            gpu.wait_until(self.now_s)


@dataclass(slots=True)
class _Gpu:
    """A GPU: clocks in force, those that were asked for (``_coming``), those still to be asked (``_due``).

    ``requests`` are those of every iteration, which begins at the ``clocks`` that it opens with.
    ``waiting_w`` is the power of a waiting GPU by clock, ``spared_w`` what it spares by its memory clock. A
    request that is not due yet is superseded by a later one that is due before it, as in the job.
    """

    clocks: Clocks
    requests: tuple[ClockRequest, ...]
    change: ClockChange
    waiting_w: Mapping[int, float]
    spared_w: Mapping[int, float]
    now_s: float = 0.0
    energy_j: float = 0.0
    _opening: Clocks = field(init=False)
    _position: int = 0
    _of: dict[tuple[int, bool], list[ClockRequest]] = field(default_factory=dict)
    _due: list[tuple[float, Clocks]] = field(default_factory=list)
    _coming: list[tuple[float, Clocks]] = field(default_factory=list)
    _free_s: float = -math.inf

    def __post_init__(self) -> None:
        self._opening = self.clocks
        for request in self.requests:
            self._of.setdefault((request.position, request.over), []).append(request)

    @property
    def waiting_power_w(self) -> float:
        """Return what it takes now while it waits."""
        clock_mhz, memory_mhz = self.clocks
        nearest = min(self.waiting_w, key=lambda known_mhz: abs(known_mhz - clock_mhz))
        return self.waiting_w[nearest] - self.spared_w.get(memory_mhz or 0, 0.0)

    def begin_iteration(self) -> None:
        self._position = 0
        self._request(self._opening, self.now_s)
        self._ask(OPENING, over=False)

    def wait_until(self, moment_s: float) -> None:
        """Wait at whatever clocks are in force; a moment that is over changes nothing."""
        while self.now_s < moment_s:
            until_s = min(moment_s, self._next_s())
            self.energy_j += (until_s - self.now_s) * self.waiting_power_w
            self._pass_to(until_s)

    def compute(self, one: Played, options: Options, ready_s: float, times: float) -> float:
        """Run the next computation once it is ready, and return when it ends.

        Each share of the work is done at the clock that is in force then; ``times`` is how much more work
        there is than on average. What kernels of a timeline take at clocks of others is not known: they run
        as planned once their first clocks are in force, and before that at the whole clock in force.
        """
        self.wait_until(ready_s)
        self._ask(self._position, over=False)
        left = 1.0
        while left > 0.0:
            if one.kernels and (self.clocks == one.parts[0].clocks or not (self._due or self._coming)):
                self.energy_j += left * times * one.energy_j
                self._pass_to(self.now_s + left * times * one.duration_s)
                break
            at = int(abs(options.clock_mhz - self.clocks[0]).argmin())
            time_s, until_s = times * float(options.time_s[at]), self._next_s()
            share = min(left, max(0.0, until_s - self.now_s) / time_s)
            self.energy_j += share * (times * float(options.energy_j[at]))
            self._pass_to(self.now_s + share * time_s if share == left else until_s)
            left -= share
        self._ask(self._position, over=True)
        self._position += 1
        return self.now_s

    def _ask(self, position: int, *, over: bool) -> None:
        for request in self._of.get((position, over), ()):
            self._request((request.clock_mhz, request.memory_mhz), self.now_s + request.offset_s)

    def _request(self, clocks: Clocks, due_s: float) -> None:
        self._due = [one for one in self._due if one[0] <= due_s]
        self._due.append((due_s, clocks))
        self._call()

    def _next_s(self) -> float:
        """Return when something happens next: a request is due, or a clock comes into force."""
        return min((events[0][0] for events in (self._due, self._coming) if events), default=math.inf)

    def _pass_to(self, moment_s: float) -> None:
        self.now_s = max(self.now_s, moment_s)
        self._call()

    def _call(self) -> None:
        """Make every call that is due, and have every clock in force that has come."""
        while self._due and self._due[0][0] <= self.now_s:
            due_s, clocks = self._due.pop(0)
            comes_s, last = self._coming[-1] if self._coming else (-math.inf, self.clocks)
            if clocks == last:
                continue
            begins_s = max(due_s, self._free_s)
            self._free_s = begins_s + self.change.call_s
            in_force_s = begins_s + self.change.latency_s(last[0], clocks[0])
            self._coming.append((max(in_force_s, comes_s), clocks))
        while self._coming and self._coming[0][0] <= self.now_s:
            self.clocks = self._coming.pop(0)[1]


# What the errors of a profile's energies do to a plan's saving.


def savings_within_pct(plans: PlanSet, known: Profile) -> Floats | None:
    """Half of the interval that holds each plan's saving 95 times in 100, by the profile's errors alone.

    None where the profile has no errors, and where plans have timelines, whose own errors nobody knows.

    Shape: [plans].
    """
    has_errors = bool(known.errors) or any(
        point.energy_se_j for own in known.points.values() for point in own
    )
    if not has_errors or any(options.timelines for options in plans.options.values()):
        return None
    before_j = plans.baseline.energy_j
    every = np.arange(len(plans))
    return np.asarray(100.0 * TWICE * _errors(plans, every, known, before_j, plans.energy_j / before_j))


def _errors(
    plans: PlanSet, rows: NDArray[np.int64], known: Profile, before_j: float, ratio: Floats
) -> Floats:
    """Standard errors of savings as shares: every point counts as often as it is run on either side.

    Points of one curve are off together, as far as its errors show. Timelines count for nothing.

    Shape: ``rows``, ``ratio`` and the result [rows].
    """
    columns: dict[Computation, list[int]] = {key: [] for key in plans.options}
    for column, instruction in enumerate(plans.computations()):
        columns[instruction.stage, instruction.kind].append(column)
    variance = np.zeros(len(rows))
    for key, own in columns.items():
        points = known.of(*key)
        runs = _runs(plans, rows, np.array(own, np.int64), len(plans.options[key].time_s))[:, : len(points)]
        runs[:, 0] -= ratio * len(own)
        if key in known.errors:
            takes_j = runs * np.array([point.energy_j for point in points])
            off_j = takes_j @ known.errors[key].energy
        else:
            off_j = runs * np.array([point.energy_se_j for point in points])
        variance += (off_j**2).sum(axis=1) / before_j**2
    return np.asarray(np.sqrt(variance))


def _runs(plans: PlanSet, rows: NDArray[np.int64], columns: NDArray[np.int64], options: int) -> Floats:
    """Return how often each option of one computation is run; a part of it counts as its share of the work.

    Shape: [rows, options].
    """
    place = np.full(len(plans), -1)
    place[rows] = np.arange(len(rows))
    at = np.arange(len(rows))[:, None] * options + plans.choice[rows][:, columns]
    runs = np.bincount(at.ravel(), minlength=len(rows) * options).reshape(len(rows), options).astype(float)
    splits = plans.splits
    mine = np.isin(splits.column, columns) & (place[splits.plan] >= 0)
    plan, rest = splits.plan[mine], 1.0 - splits.share[mine]
    np.subtract.at(runs, (place[plan], plans.choice[plan, splits.column[mine]]), rest)
    np.add.at(runs, (place[plan], splits.option[mine]), rest)
    return runs


# What the errors of a profile's times do to an iteration.


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """Consequences of a profile's errors of time for a plan and its baseline.

    ``before_s`` and ``after_s`` are by how much longer iterations of either side last on average. Of paths
    that are alike as profiled one really is the longest. ``ratio`` is the standard error that is left to the
    plan's time over the baseline's. ``slower`` is by what share the plan's iterations last longer than the
    baseline's on average, its reserve counted.
    """

    before_s: float
    after_s: float
    ratio: float
    slower: float


def time_errors(
    plan: FrequencyPlan, profile: Profile, dag: Dag, factor: Floats, variation: Mapping[Computation, float]
) -> TimeErrors:
    """Draw every point's error, and run both sides with and without.

    A point is off alike wherever it is run, and those of one curve are off together. A timeline was brought
    to what was measured at the highest clock, and is off as that is.

    Shape: ``factor`` [nodes, any] is what durations are multiplied by, as they vary.
    Cost: one pass over the graph for all draws.
    """
    draws = int(np.clip(_MOST_ERROR_NUMBERS // len(dag.nodes), _LEAST_ERROR_DRAWS, _MOST_ERROR_DRAWS))
    random, off = np.random.default_rng(1), {}
    for key in plan.of.options:
        time_s = np.array([point.time_s for point in profile.of(*key)])
        factor_of = time_factor(profile, key, variation.get(key, 0.0))
        off[key] = sampled_ratios(time_s, factor_of, random.standard_normal((len(time_s), draws)))
    highest = dict.fromkeys(plan.of.computations(), (Portion(0, 1.0),))
    drawn = factor[:, np.arange(draws) % factor.shape[1]]
    sides = [(portions, times) for portions in (highest, plan.portions()) for times in ({}, off)]
    lasts_s = np.hstack([_lasts_s(plan, dag, portions, times, drawn) for portions, times in sides])
    before_s, before_off_s, after_s, after_off_s = dag.longest(lasts_s, plan.of.fixed_s).reshape(4, draws)
    return TimeErrors(
        before_s=float((before_off_s - before_s).mean()),
        after_s=float((after_off_s - after_s).mean()),
        ratio=float((after_off_s / before_off_s - after_s / before_s).std()),
        slower=float(after_off_s.mean() / before_off_s.mean() - 1.0),
    )


def _lasts_s(
    plan: FrequencyPlan,
    dag: Dag,
    portions: Mapping[Instruction, Sequence[Portion]],
    times: Mapping[Computation, Floats],
    drawn: Floats,
) -> Floats:
    """Return how long every node lasts; ``times`` are each point's factors, none where they are exact.

    Shape: ``times`` [points, draws]; ``drawn`` and the answer [nodes, draws].
    """
    lasts_s = np.empty_like(drawn)
    for row, node in enumerate(dag.nodes):
        key = node.stage, node.kind
        if not node.kind.is_computation:
            lasts_s[row] = plan.of.fixed_s[key]
            continue
        options, known = plan.of.options[key], times.get(key, np.ones((1, 1)))
        clocks = min(len(options.clock_mhz), len(known))
        lasts_s[row] = drawn[row] * sum(
            share * options.time_s[option] * known[option if option < clocks else 0]
            for option, share in portions[node]
        )
    return lasts_s


# What errors a profile has, and what they cost the plan that loses no time.


@dataclass(frozen=True, slots=True)
class EntryError:
    """Standard error of an entry of a profile, root mean square of all, and what that may cost.

    ``measured``: the profile's own standard errors, else the scatter of its points around smooth curves.
    ``slowdown_pct`` is how much longer the plan that loses no time takes than the highest clocks. It is a
    mean over what these errors leave open, None where they are too small to cost anything.

    Units: percent.
    """

    time_pct: float
    energy_pct: float
    measured: bool
    slowdown_pct: float | None

    @property
    def matters(self) -> bool:
        return (self.time_pct if self.slowdown_pct is None else self.slowdown_pct) >= WORTH_SAYING_PCT

    def __str__(self) -> str:
        whose = "its standard errors" if self.measured else "the scatter of its points around smooth curves"
        energy = f"{self.energy_pct:.2g} % in energy per entry ({whose})"
        said = f"the profile is off by {self.time_pct:.2g} % in time and {energy}"
        if self.slowdown_pct is None:
            return said
        return (
            f"{said}: the plan that loses no time keeps a margin for that, and really takes"
            f" {self.slowdown_pct:.2f} % longer on average. A profile of longer windows"
            " (perseus.profile.min_window_s) has smaller errors"
        )


@dataclass(frozen=True, slots=True)
class FewClocks:
    """A profile of so few clocks, without errors of its own, that its durations are in doubt.

    ``scatter_pct`` is that of its times around smooth curves; None where there are too few clocks to see any.
    """

    clocks: int
    scatter_pct: float | None

    def __str__(self) -> str:
        said = f"the profile states no errors, and at {self.clocks} clocks"
        if self.scatter_pct is None:
            return f"{said} none can be seen: the plan that loses no time may lose what durations are off by"
        return (
            f"{said} its times scatter by {self.scatter_pct:.2g} % around smooth curves: plans keep a margin"
            f" for that, and the one that loses no time may still lose some. {ENOUGH_POINTS} clocks show more"
        )


def few_clocks(profile: Profile) -> FewClocks | None:
    """Doubt a profile as it was read; None where it gives no cause."""
    points = [point for own in profile.points.values() for point in own]
    clocks = min(map(len, profile.points.values()))
    if clocks >= ENOUGH_POINTS or any(p.time_se_s > 0.0 or p.samples > 1 for p in points):
        return None
    found = scatters(profile)
    if found is not None and found[0] < SCATTER_HARMLESS:
        return None
    return FewClocks(clocks, None if found is None else 100.0 * found[0])


def profile_error(profile: Profile, plans: PlanSet) -> EntryError | None:
    """Find a profile's errors and what they may cost its plan; None where it has neither errors nor points.

    Cost: some passes over the schedule's graph.
    """
    points = [point for own in profile.points.values() for point in own]
    shares = np.array([(p.time_se_s / p.time_s, p.energy_se_j / p.energy_j) for p in points])
    measured = bool((shares > 0.0).any())
    errors = tuple(np.sqrt(np.mean(np.square(shares), axis=0)).tolist()) if measured else scatters(profile)
    if errors is None:
        return None
    slowdown_pct = None
    if 100.0 * errors[0] >= HARMLESS_PCT:
        dag, plan = dag_of(plans.schedule), select(plans, Objective())
        found = time_errors(plan, smooth(profile), dag, np.ones((len(dag.nodes), 1)), {})
        slowdown_pct = max(0.0, 100.0 * found.slower)
    return EntryError(100.0 * errors[0], 100.0 * errors[1], measured, slowdown_pct)
