"""The cheapest way to cut a launch sequence into runs of one pair of clocks, at a price: one pass over it."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.compiled import allocating, compiled
from perseus_ds.solver.problem import Floats, Ints


@compiled
def cheapest_runs(
    kernels: Ints, cost: Floats, time_s: Floats, change_cost: float, dwell_s: float
) -> tuple[Ints, Ints]:
    """Choose runs of least cost: every launch costs by its pair, every change costs ``change_cost``.

    Each run lasts ``dwell_s`` at least, unless it is the only one. A launch that cannot run at a pair has an
    infinite time there; at the first pair every launch can.

    Shape: ``kernels`` [launches], classes; ``cost``, ``time_s`` [classes, pairs]. Returns where each run
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
    """Running sums along the sequence; what cannot run adds nothing, since no run contains it.

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
    starts, runs = np.empty(end, dtype=np.int64), np.empty(end, dtype=np.int64)
    count, pair = 0, cheapest[end]
    while end > 0:
        end = start[end, pair]
        starts[count], runs[count] = end, pair
        count += 1
        pair = cheapest[end] if cheapest[end] != pair else next_cheapest[end]
    return starts[:count][::-1].copy(), runs[:count][::-1].copy()
