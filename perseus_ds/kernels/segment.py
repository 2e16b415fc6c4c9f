"""Segments of least energy within a time: a search for the price of time, and a splice to use the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError, InfeasibleError
from perseus_ds.kernels.choose import LaunchCosts, least_energy
from perseus_ds.kernels.trace import KernelTrace
from perseus_ds.plan.record import AtDefault, ClockSegments, InstructionTimelines, TimelineStep
from perseus_ds.solver.compiled import allocating, compiled
from perseus_ds.solver.problem import Floats, Ints

# A launch sequence cut into segments of one pair, what it costs, and what a change of pair costs.


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """Cost of a change of clocks.

    A change is asked for ahead by its latency, so that it is in force at the boundary. While one is on its
    way no other is asked for. So a segment lasts as long as the slowest change, or ``dwell_s`` if that is
    longer. ``stall_w`` is drawn while a change stalls the GPU.
    """

    change: ClockChange
    dwell_s: float = 0.0
    stall_w: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("dwell_s", self.dwell_s), ("stall_w", self.stall_w)):
            if not 0.0 <= value <= math.inf:
                raise ConfigError(f"change of clocks: {name} is {value}", hint="expected 0 or more")

    @property
    def min_dwell_s(self) -> float:
        """Shortest duration of a segment."""
        return max(self.dwell_s, self.change.longest_s)


FREE = ChangeCost(ClockChange())


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """A launch sequence with what each class costs at each pair.

    Shape: ``kernels`` [launches], rows of ``costs``.
    """

    kernels: Ints
    costs: LaunchCosts
    change: ChangeCost = FREE

    @property
    def default_s(self) -> float:
        """Time at the default pair."""
        return float(self.costs.time_s[self.kernels, 0].sum())

    @property
    def default_j(self) -> float:
        """Energy at the default pair."""
        return float(self.costs.energy_j[self.kernels, 0].sum())

    def segments(self, starts: Ints, option: Ints, bound_j: float = 0.0) -> Segments:
        """Cost the given segments."""
        per_launch = np.repeat(option, np.diff(np.append(starts, len(self.kernels))))
        stalled_s = (len(starts) - 1) * self.change.change.stall_s
        return Segments(
            starts,
            option,
            float(self.costs.time_s[self.kernels, per_launch].sum()) + stalled_s,
            float(self.costs.energy_j[self.kernels, per_launch].sum()) + stalled_s * self.change.stall_w,
            bound_j,
        )

    def joined(self, per_launch: Ints) -> Segments:
        """Join launches of one pair that follow each other.

        Shape: [launches].
        """
        starts = np.flatnonzero(np.append(True, np.diff(per_launch) != 0))
        return self.segments(starts, per_launch[starts])

    def satisfies_min_dwell(self, segments: Segments) -> bool:
        """Return whether every segment lasts long enough, or is the only one."""
        return len(segments.starts) == 1 or bool(self.durations_s(segments).min() >= self.change.min_dwell_s)

    def durations_s(self, segments: Segments) -> Floats:
        """Return the duration of each segment.

        Shape: [runs].
        """
        per_launch = segments.per_launch(len(self.kernels))
        return np.add.reduceat(self.costs.time_s[self.kernels, per_launch], segments.starts)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Start of each segment (a launch), and its pair (a column of the costs).

    No segments within the same time use less than ``bound_j`` (0: not known).
    """

    starts: Ints
    option: Ints
    time_s: float
    energy_j: float
    bound_j: float = 0.0

    @property
    def changes(self) -> int:
        """Changes of pair inside the sequence."""
        return len(self.starts) - 1

    def per_launch(self, launches: int) -> Ints:
        """The pair of every launch.

        Shape: [launches].
        """
        per_launch: Ints = np.repeat(self.option, np.diff(np.append(self.starts, launches)))
        return per_launch


# The cheapest way to cut a launch sequence into segments of one pair of clocks, at a price: one pass over it.


@compiled
def cheapest_segments(
    kernels: Ints, cost: Floats, time_s: Floats, change_cost: float, dwell_s: float
) -> tuple[Ints, Ints]:
    """Choose segments of least cost: every launch costs by its pair, every change costs ``change_cost``.

    Each segment lasts ``dwell_s`` at least, unless it is the only one. A launch that cannot run at a pair has
    an infinite time there; at the first pair every launch can.

    Shape: ``kernels`` [launches], classes; ``cost``, ``time_s`` [classes, pairs]. Returns where each segment
    starts, and its pair.
    Cost: O(launches x pairs) in time and memory.
    """
    launches, pairs = len(kernels), cost.shape[1]
    spent, passed = _sums(kernels, cost, time_s), _sums(kernels, time_s, time_s)
    start = np.full((launches + 1, pairs), -1)
    least, next_least = np.full(launches + 1, np.inf), np.full(launches + 1, np.inf)
    cheapest, next_cheapest = np.full(launches + 1, -1), np.full(launches + 1, -1)
    open_cost, open_at = np.full(pairs, np.inf), np.full(pairs, -1)
    tried = np.zeros(pairs, dtype=np.int64)
    for end in range(1, launches + 1):
        for pair in range(pairs):
            if not np.isfinite(time_s[kernels[end - 1], pair]):
                open_cost[pair], tried[pair] = np.inf, end
                continue
            while tried[pair] < end and passed[end, pair] - passed[tried[pair], pair] >= dwell_s:
                at = tried[pair]
                others = least[at] if cheapest[at] != pair else next_least[at]
                before = change_cost + others if at > 0 else 0.0
                if before - spent[at, pair] < open_cost[pair]:
                    open_cost[pair], open_at[pair] = before - spent[at, pair], at
                tried[pair] += 1
            start[end, pair] = open_at[pair]
            value = open_cost[pair] + spent[end, pair]
            if value < least[end]:
                next_least[end], next_cheapest[end] = least[end], cheapest[end]
                least[end], cheapest[end] = value, pair
            elif value < next_least[end]:
                next_least[end], next_cheapest[end] = value, pair
    only = _best_only(kernels, time_s, spent)
    if spent[launches, only] <= least[launches]:
        return np.zeros(1, dtype=np.int64), np.full(1, only)
    return _walk_back(start, cheapest, next_cheapest)


@allocating
def _sums(kernels: Ints, values: Floats, time_s: Floats) -> Floats:
    """Running sums along the sequence; what cannot run adds nothing, since no segment contains it.

    Shape: [launches + 1, pairs].
    """
    sums = np.zeros((len(kernels) + 1, values.shape[1]))
    for launch in range(len(kernels)):
        kernel = kernels[launch]
        for pair in range(values.shape[1]):
            adds = values[kernel, pair] if np.isfinite(time_s[kernel, pair]) else 0.0
            sums[launch + 1, pair] = sums[launch, pair] + adds
    return sums


@allocating
def _best_only(kernels: Ints, time_s: Floats, spent: Floats) -> int:
    """The pair that is cheapest for the whole sequence."""
    able = np.ones(spent.shape[1], dtype=np.bool_)
    for kernel in kernels:
        for pair in range(len(able)):
            able[pair] = able[pair] and np.isfinite(time_s[kernel, pair])
    best = 0
    for pair in range(len(able)):
        if able[pair] and spent[-1, pair] < spent[-1, best]:
            best = pair
    return best


@allocating
def _walk_back(start: Ints, cheapest: Ints, next_cheapest: Ints) -> tuple[Ints, Ints]:
    end = len(start) - 1
    starts, segments = np.empty(end, dtype=np.int64), np.empty(end, dtype=np.int64)
    count, pair = 0, cheapest[end]
    while end > 0:
        end = start[end, pair]
        starts[count], segments[count] = end, pair
        count += 1
        pair = cheapest[end] if cheapest[end] != pair else next_cheapest[end]
    return starts[:count][::-1].copy(), segments[:count][::-1].copy()


_MOST_PRICES = 40


def segments_at(sequence: Sequence, price_w: float) -> Segments:
    """Cut so that energy plus price of time is least, changes and all.

    Units: watts.
    """
    costs, change = sequence.costs, sequence.change
    finite_s = np.where(np.isfinite(costs.time_s), costs.time_s, 0.0)
    starts, option = cheapest_segments(
        sequence.kernels,
        costs.energy_j + price_w * finite_s,
        costs.time_s,
        change.change.stall_s * (change.stall_w + price_w),
        change.min_dwell_s,
    )
    return sequence.segments(starts, option)


def segments_within(sequence: Sequence, budget_s: float) -> Segments:
    """Cut so that energy is least and the whole takes ``budget_s`` at most.

    Never worse than the best single pair, nor, where changes allow it, than a pair for each class. The
    bound is the best Lagrangian one.

    Raises:
        InfeasibleError: no single pair fits.
    Cost: about ten passes over the sequence.
    """
    budget_s *= 1.0 + len(sequence.kernels) * float(np.finfo(float).eps)
    best = fast = _best_single(sequence, budget_s)
    slow = segments_at(sequence, 0.0)
    if slow.time_s <= budget_s:
        return sequence.segments(slow.starts, slow.option, slow.energy_j)
    bound_j = slow.energy_j
    for _ in range(_MOST_PRICES):
        price_w = (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)
        found = segments_at(sequence, price_w)
        value_j = found.energy_j + price_w * found.time_s
        bound_j = max(bound_j, value_j - price_w * budget_s)
        if value_j >= (fast.energy_j + price_w * fast.time_s) * (1.0 - 1e-12):
            break
        if found.time_s <= budget_s:
            fast = found
            best = min(best, found, key=_energy)
        else:
            slow = found
    others = [_by_class(sequence, budget_s), *_spliced(sequence, fast, slow, budget_s)]
    best = min([best, *(one for one in others if _fits(sequence, one, budget_s))], key=_energy)
    return sequence.segments(best.starts, best.option, min(bound_j, best.energy_j))


def _energy(segments: Segments) -> float:
    return segments.energy_j


def _fits(sequence: Sequence, segments: Segments, budget_s: float) -> bool:
    return segments.time_s <= budget_s and sequence.satisfies_min_dwell(segments)


def _best_single(sequence: Sequence, budget_s: float) -> Segments:
    zero = np.zeros(1, dtype=np.int64)
    every = [sequence.segments(zero, np.array([pair])) for pair in range(len(sequence.costs.pairs))]
    fitting = [one for one in every if one.time_s <= budget_s]
    if not fitting:
        least_s = min(one.time_s for one in every)
        raise InfeasibleError(f"at one pair of clocks it takes {least_s:g} s, more than {budget_s:g} s")
    return min(fitting, key=_energy)


def _by_class(sequence: Sequence, budget_s: float) -> Segments:
    """The knapsack's choice, one pair for each class, launched as it is."""
    kernels, counts = np.unique(sequence.kernels, return_counts=True)
    time_s, energy_j = (
        values[kernels] * counts[:, None] for values in (sequence.costs.time_s, sequence.costs.energy_j)
    )
    option = np.zeros(len(sequence.costs.time_s), dtype=np.int64)
    option[kernels], _ = least_energy(time_s, energy_j, budget_s)
    return sequence.joined(option[sequence.kernels])


def _spliced(sequence: Sequence, fast: Segments, slow: Segments, budget_s: float) -> list[Segments]:
    """A beginning and the other's end: cut where energy is least within the time."""
    launches = len(sequence.kernels)
    first, second = fast.per_launch(launches), slow.per_launch(launches)
    return [
        one
        for head, tail in ((first, second), (second, first))
        for one in _cuts(sequence, head, tail, budget_s)
    ]


_CUTS_TRIED = 64


def _cuts(sequence: Sequence, head: Ints, tail: Ints, budget_s: float) -> list[Segments]:
    """The most promising cuts; stalls and short segments are checked by whoever takes one."""
    costs, kernels = sequence.costs, sequence.kernels
    time_s, energy_j = (
        _sum_to(values[kernels, head]) + _sum_from(values[kernels, tail])
        for values in (costs.time_s, costs.energy_j)
    )
    order = np.argsort(np.where(time_s <= budget_s, energy_j, np.inf), kind="stable")[:_CUTS_TRIED]
    fitting = order[time_s[order] <= budget_s]
    return [sequence.joined(np.append(head[:cut], tail[cut:])) for cut in fitting.tolist()]


def _sum_to(values: Floats) -> Floats:
    return np.append(0.0, np.cumsum(values))


def _sum_from(values: Floats) -> Floats:
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


# An instruction's own frontier: a few timelines of pairs, from its fastest to its cheapest.

MOST = 12
STEADY_SHARE = 0.15
"""Of an instruction's duration: who runs a timeline knows moments, not kernels. Small errors of duration
shift kernels across clock boundaries; a pair that is held for longer is robust against this.
"""


def timelines(sequence: Sequence) -> tuple[ClockSegments, ...]:
    """Find corners of the frontier, each best at some price of time, fastest first.

    Between two corners the next price is that of their chord; the chord that spans the most energy is
    looked at first.

    Cost: one pass over the sequence for each corner.
    """
    corners = [_fastest(sequence), segments_at(sequence, 0.0)]
    closed: set[tuple[float, float]] = set()
    while len(corners) < MOST:
        chords = [
            (fast, slow)
            for fast, slow in pairwise(corners)
            if slow.time_s > fast.time_s and (fast.time_s, slow.time_s) not in closed
        ]
        if not chords:
            break
        fast, slow = max(chords, key=lambda chord: chord[0].energy_j - chord[1].energy_j)
        price_w = (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)
        between = segments_at(sequence, price_w)
        value_j = between.energy_j + price_w * between.time_s
        below = value_j < (fast.energy_j + price_w * fast.time_s) * (1.0 - 1e-12)
        if below and fast.time_s < between.time_s < slow.time_s:
            corners.insert(corners.index(slow), between)
        else:
            closed.add((fast.time_s, slow.time_s))
    return tuple(_timeline(sequence, segments) for segments in _falling(corners))


def timelines_of(
    costs: LaunchCosts,
    trace: KernelTrace,
    change: ChangeCost,
    *,
    spared_w: tuple[tuple[int, float], ...] = (),
) -> tuple[InstructionTimelines, ...]:
    """Find the frontier of every instruction of a trace, each pair held for ``STEADY_SHARE`` of it.

    ``spared_w`` is of the profile that the costs come from.
    """
    found = []
    for one in trace.sequences:
        kernels = np.array(one.kernels)
        steady_s = STEADY_SHARE * Sequence(kernels, costs).default_s
        held = replace(change, dwell_s=max(change.dwell_s, steady_s))
        sequence = Sequence(kernels, costs, held)
        default = AtDefault(sequence.default_s, sequence.default_j)
        lines = timelines(sequence)
        found.append(InstructionTimelines(one.stage, one.kind, lines, default, spared_w))
    return tuple(found)


def _falling(corners: list[Segments]) -> list[Segments]:
    """Leave out what takes as long or longer and saves nothing."""
    kept: list[Segments] = []
    for segments in sorted(corners, key=lambda segments: (segments.time_s, segments.energy_j)):
        if not kept or segments.energy_j < kept[-1].energy_j:
            kept.append(segments)
    return kept


def _fastest(sequence: Sequence) -> Segments:
    costs, change = sequence.costs, sequence.change
    finite_s = np.where(np.isfinite(costs.time_s), costs.time_s, 0.0)
    starts, option = cheapest_segments(
        sequence.kernels, finite_s, costs.time_s, change.change.stall_s, change.min_dwell_s
    )
    return sequence.segments(starts, option)


def _timeline(sequence: Sequence, segments: Segments) -> ClockSegments:
    stall_s = sequence.change.change.stall_s
    begins_s = np.append(0.0, np.cumsum(sequence.durations_s(segments) + stall_s))[:-1]
    steps = tuple(
        TimelineStep(int(launch), float(offset_s), sequence.costs.pairs[option])
        for launch, offset_s, option in zip(segments.starts, begins_s, segments.option, strict=True)
    )
    return ClockSegments(segments.time_s, segments.energy_j, steps)
