"""Plans that are the relaxed optimum itself: an activity may do its work at two options in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseus_ds.solver.dual import bounds_at
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.paths import longest_seconds
from perseus_ds.solver.plans import Plans, blended, undominated
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem
from perseus_ds.solver.splitting.corner import TICKS, corner_durations
from perseus_ds.solver.splitting.reclaim import reclaimed

FARTHEST = 2**51
"""Further than any two lengths can be apart in ticks."""
BLOCK = 64
"""Plans whose options are looked up at once."""
GRAIN = 2**20
"""Shares of work are whole multiples of 1 / GRAIN: less than any clock change can be timed by."""


def split(problem: Problem, frontier: Frontier, times_s: Floats, *, least_part_s: float = 0.0) -> Plans:
    """Choose for every wanted time the optimal durations, each from the two options around it.

    A duration between two options is exactly on the hull when part of the work is done at one and the rest at
    the other. With ``least_part_s`` 0 what is left of a gap is rounding. No part is shorter than
    ``least_part_s``: the faster option takes over where one would be, and the time that it gains is given to
    others.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: linear in activities per time.
    """
    frontier.refuse_below(times_s)
    choice, other, share = optimal_shares(frontier, np.sort(np.asarray(times_s)), least_part_s)
    duration_s, cost_j = blended(problem, choice, other, share)
    time_s = longest_seconds(problem, frontier.whole.graph, duration_s)
    total_j = cost_j.sum(axis=1)
    best = undominated(time_s, total_j)
    bound_j = bounds_at(frontier, np.maximum(time_s, frontier.t_min_s))
    return Plans(time_s, total_j, bound_j, choice, other, share).at(best)


def optimal_shares(
    frontier: Frontier, times_s: Floats, least_part_s: float
) -> tuple[Indices, Indices, Floats]:
    """The two options of every activity and the share of the first, which is the faster, for every time.

    Shape: returns [times, activities] each.
    """
    blocks = np.split(np.asarray(times_s), range(BLOCK, len(times_s), BLOCK))
    rows = [_plans(frontier, block_s.tolist(), least_part_s) for block_s in blocks]
    choice, other, share = (np.concatenate(column) for column in zip(*rows, strict=True))
    return choice, other, share


def _plans(
    frontier: Frontier, times_s: Sequence[float], least_part_s: float
) -> tuple[Indices, Indices, Floats]:
    duration = np.array([corner_durations(frontier, time_s) for time_s in times_s])
    choice, other, share = _around(frontier, duration, least_part_s)
    if least_part_s <= 0.0:
        return choice, other, share
    duration_s, _ = blended(frontier.whole.problem, choice, other, share)
    rows = zip(duration_s, times_s, strict=True)
    duration = np.array([reclaimed(frontier, row_s, time_s, least_part_s) for row_s, time_s in rows])
    return _around(frontier, duration, least_part_s)


def _around(frontier: Frontier, duration: Ints, least_part_s: float) -> tuple[Indices, Indices, Floats]:
    """Name the options on the hull around every duration; no part is shorter than allowed.

    Shape: ``duration`` [plans, activities]; returns the same.
    """
    whole = frontier.whole
    table, hulls = whole.problem.table_of.astype(np.int64), whole.hulls
    sizes = np.array([len(hull.option) for hull in hulls])
    lengths = whole.tick.whole(np.concatenate([hull.duration_s for hull in hulls]))
    option = np.concatenate([hull.option for hull in hulls]).astype(np.int32)
    duration_s = np.concatenate([hull.duration_s for hull in hulls])
    last = np.cumsum(sizes) - 1
    row = np.repeat(np.arange(len(hulls)), sizes)  # hull behind hull, each ascending: one sorted column
    at = np.searchsorted(row * FARTHEST + lengths, table * FARTHEST + duration + TICKS, side="right") - 1
    at = np.clip(at, (last - sizes + 1)[table], last[table])
    above = np.minimum(at + 1, last[table])
    between = (duration > lengths[at] + TICKS) & (above > at)
    width = np.where(between, lengths[above] - lengths[at], 1)
    fast = np.where(between, (lengths[above] - duration) / width, 1.0)
    fast = long_enough(fast, duration_s[at], duration_s[above], least_part_s)
    return option[at], np.where(fast < 1.0, option[above], option[at]), fast


def long_enough(fast: Floats, fast_s: Floats, slow_s: Floats, least_s: float) -> Floats:
    """Share of the faster option: more of it, or all, where a part would be too short; none stays none."""
    if least_s <= 0.0:
        return np.minimum(1.0, np.ceil(fast * GRAIN) / GRAIN)
    alone = np.divide(least_s, fast_s, out=np.full_like(fast_s, np.inf), where=fast_s > 0.0)
    more = np.where((fast > 0.0) & (fast < 1.0), np.maximum(fast, alone), fast)
    more = np.ceil(more * GRAIN) / GRAIN
    return np.where((more <= 0.0) | ((1.0 - more) * slow_s >= least_s), more, 1.0)
