"""Segments of least energy within a time: a search for the price of time, and a splice to use the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perseus_ds.errors import InfeasibleError
from perseus_ds.kernels.choose import CostTable
from perseus_ds.kernels.trace import KernelTrace
from perseus_ds.plan.record import AtDefault, ClockSegments, InstructionTimelines, TimelineStep
from perseus_ds.solver.compiled import allocating, compiled
from perseus_ds.solver.problem import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """A launch sequence with what each class costs at each pair.

    A change of pair is asked for ahead by its latency, so that it is in force at the boundary. While one is
    on its way no other is asked for: a segment lasts ``min_dwell_s``, the latency or more, unless it is the
    only one.

    Shape: ``kernels`` [launches], rows of ``costs``.
    """

    kernels: Ints
    costs: CostTable
    min_dwell_s: float = 0.0

    @property
    def at_default(self) -> Segments:
        """All launches at the default pair."""
        return self.segments(np.zeros(len(self.kernels), dtype=np.int64))

    def segments(self, per_launch: Ints, bound_j: float = 0.0) -> Segments:
        """Cost a pair for each launch."""
        time_s, energy_j = (
            float(values[self.kernels, per_launch].sum())
            for values in (self.costs.time_s, self.costs.energy_j)
        )
        return Segments(per_launch, time_s, energy_j, bound_j)

    def durations_s(self, segments: Segments) -> Floats:
        """Return the duration of each segment. Shape: [segments]."""
        return np.add.reduceat(self.costs.time_s[self.kernels, segments.per_launch], segments.starts)

    def are_held(self, segments: Segments) -> bool:
        """Return whether every segment lasts long enough, or is the only one."""
        return not segments.changes or bool(self.durations_s(segments).min() >= self.min_dwell_s)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The pair of every launch (a column of the costs); launches in a row at one pair are a segment.

    No segments within the same time use less than ``bound_j`` (0: not known).
    """

    per_launch: Ints
    time_s: float
    energy_j: float
    bound_j: float = 0.0

    @property
    def starts(self) -> Ints:
        """The first launch of each segment. Shape: [segments]."""
        return np.flatnonzero(np.append(True, np.diff(self.per_launch) != 0))

    @property
    def changes(self) -> int:
        """Changes of pair inside the sequence."""
        return len(self.starts) - 1


# The cheapest way to cut a launch sequence into segments of one pair of clocks, at a price: one pass over it.


@compiled
def cheapest_segments(kernels: Ints, cost: Floats, time_s: Floats, dwell_s: float) -> Ints:
    """Choose segments of least cost, where every launch costs by its pair; return the pair of each launch.

    Each segment lasts ``dwell_s`` at least, unless it is the only one. A launch that cannot run at a pair has
    an infinite time there; at the first pair every launch can.

    Shape: ``kernels`` [launches], classes; ``cost``, ``time_s`` [classes, pairs].
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
                before = others if at > 0 else 0.0
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
        return np.full(launches, only)
    per_launch, end, pair = np.empty(launches, dtype=np.int64), launches, cheapest[launches]
    while end > 0:
        begin = start[end, pair]
        per_launch[begin:end] = pair
        end = begin
        pair = cheapest[end] if cheapest[end] != pair else next_cheapest[end]
    return per_launch


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


def segments_at(sequence: Launches, price_w: float) -> Segments:
    """Cut so that energy plus price of time is least; at an infinite price, time alone.

    Units: watts.
    """
    costs = sequence.costs
    finite_s = np.where(np.isfinite(costs.time_s), costs.time_s, 0.0)
    cost = finite_s if price_w == math.inf else costs.energy_j + price_w * finite_s
    return sequence.segments(cheapest_segments(sequence.kernels, cost, costs.time_s, sequence.min_dwell_s))


def _corner_between(sequence: Launches, fast: Segments, slow: Segments) -> Segments | None:
    """Return the corner of the frontier that is best at a chord's price; None where the chord is an edge."""
    price_w = (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)
    found = segments_at(sequence, price_w)
    on_chord_j = fast.energy_j + price_w * fast.time_s
    return found if found.energy_j + price_w * found.time_s < on_chord_j * (1.0 - 1e-12) else None


def segments_within(sequence: Launches, budget_s: float) -> Segments:
    """Cut so that energy is least and the whole takes ``budget_s`` at most.

    Never worse than the best single pair. The bound is the best Lagrangian one: the frontier's edge there.

    Raises:
        InfeasibleError: no single pair fits.
    Cost: about ten passes over the sequence.
    """
    budget_s *= 1.0 + len(sequence.kernels) * float(np.finfo(float).eps)
    slow = segments_at(sequence, 0.0)
    if slow.time_s <= budget_s:
        return sequence.segments(slow.per_launch, slow.energy_j)
    every = [sequence.segments(np.full(len(sequence.kernels), p)) for p in range(len(sequence.costs.pairs))]
    fitting = [one for one in every if one.time_s <= budget_s]
    if not fitting:
        least_s = min(one.time_s for one in every)
        raise InfeasibleError(f"at one pair of clocks it takes {least_s:g} s, more than {budget_s:g} s")
    fast = min(fitting, key=_energy)
    found = [fast]
    while (between := _corner_between(sequence, fast, slow)) is not None:
        if between.time_s <= budget_s:
            fast = between
            found.append(fast)
        else:
            slow = between
    share = (budget_s - fast.time_s) / (slow.time_s - fast.time_s)
    bound_j = (fast.energy_j - share * (fast.energy_j - slow.energy_j)) * (1.0 - 1e-12)
    spliced = _splice(sequence, fast, slow, budget_s)
    found += [one for one in spliced if one.time_s <= budget_s and sequence.are_held(one)]
    best = min(found, key=_energy)
    return sequence.segments(best.per_launch, min(bound_j, best.energy_j))


def _energy(segments: Segments) -> float:
    return segments.energy_j


_CUTS_TRIED = 64


def _splice(sequence: Launches, fast: Segments, slow: Segments, budget_s: float) -> Iterator[Segments]:
    """Begin with one and end with the other, cut where energy is least within the time."""
    costs, kernels = sequence.costs, sequence.kernels
    for head, tail in ((fast.per_launch, slow.per_launch), (slow.per_launch, fast.per_launch)):
        time_s, energy_j = (
            np.append(0.0, np.cumsum(values[kernels, head]))
            + np.append(np.cumsum(values[kernels, tail][::-1])[::-1], 0.0)
            for values in (costs.time_s, costs.energy_j)
        )
        order = np.argsort(np.where(time_s <= budget_s, energy_j, np.inf), kind="stable")[:_CUTS_TRIED]
        for cut in order[time_s[order] <= budget_s].tolist():
            yield sequence.segments(np.append(head[:cut], tail[cut:]))


# An instruction's own frontier: a few timelines of pairs, from its fastest to its cheapest.

MOST = 12
STEADY_SHARE = 0.15
"""Of an instruction's duration: who runs a timeline knows moments, not kernels. Small errors of duration
shift kernels across clock boundaries; a pair that is held for longer is robust against this.
"""


def timelines(sequence: Launches) -> tuple[ClockSegments, ...]:
    """Find corners of the frontier, each best at some price of time, fastest first.

    The chord that spans the most energy is looked at first.

    Cost: one pass over the sequence for each corner.
    """
    corners = [segments_at(sequence, math.inf), segments_at(sequence, 0.0)]
    edges: set[tuple[float, float]] = set()
    while len(corners) < MOST:
        chords = [
            (fast, slow)
            for fast, slow in pairwise(corners)
            if slow.time_s > fast.time_s and (fast.time_s, slow.time_s) not in edges
        ]
        if not chords:
            break
        fast, slow = max(chords, key=lambda chord: chord[0].energy_j - chord[1].energy_j)
        between = _corner_between(sequence, fast, slow)
        if between is not None and fast.time_s < between.time_s < slow.time_s:
            corners.insert(corners.index(slow), between)
        else:
            edges.add((fast.time_s, slow.time_s))
    found: list[Segments] = []
    for one in sorted(corners, key=lambda one: (one.time_s, one.energy_j)):
        if not found or one.energy_j < found[-1].energy_j:
            found.append(one)
    return tuple(_timeline(sequence, one) for one in found)


def timelines_of(
    costs: CostTable, trace: KernelTrace, latency_s: float, *, spared_w: tuple[tuple[int, float], ...] = ()
) -> tuple[InstructionTimelines, ...]:
    """Find the frontier of every instruction of a trace, each pair held for ``STEADY_SHARE`` of it.

    ``spared_w`` is of the profile that the costs come from.
    """
    found = []
    for one in trace.sequences:
        kernels = np.array(one.kernels)
        own = Launches(kernels, costs).at_default
        lines = timelines(Launches(kernels, costs, max(latency_s, STEADY_SHARE * own.time_s)))
        default = AtDefault(own.time_s, own.energy_j)
        found.append(InstructionTimelines(one.stage, one.kind, lines, default, spared_w))
    return tuple(found)


def _timeline(sequence: Launches, segments: Segments) -> ClockSegments:
    starts = segments.starts
    begins_s = np.append(0.0, np.cumsum(sequence.durations_s(segments)))[:-1]
    steps = tuple(
        TimelineStep(int(launch), float(offset_s), sequence.costs.pairs[segments.per_launch[launch]])
        for launch, offset_s in zip(starts, begins_s, strict=True)
    )
    return ClockSegments(segments.time_s, segments.energy_j, steps)
