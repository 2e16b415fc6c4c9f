"""The cheapest timelines within a budget of changes: a toll for every change, raised until it is met."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.discrete.guide import guide_at
from perseus_ds.solver.dual import bounds_at
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.paths import longest_float
from perseus_ds.solver.plans import Plans, blended, undominated
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem
from perseus_ds.solver.splitting.split import GRAIN
from perseus_ds.solver.timeline.holding import shortest_holds_s
from perseus_ds.solver.timeline.lanes import Lanes, leveled
from perseus_ds.solver.timeline.outlook import outlook
from perseus_ds.solver.timeline.polish import Levelled, Timeline, freedom_of, polished
from perseus_ds.solver.timeline.search import levels_along
from perseus_ds.solver.timeline.uniform import one_level_each

NARROWEST, WIDTH, WIDEST = 8, 48, 1024
"""Partial plans side by side; the widest only for the shortest time, whose plan most users run."""
WORK, ALL = 400_000, 3_000_000
"""Partial plans that one wide beam may continue, and those of all other times together."""
LEANING = 0.3, 0.1, 0.6, 1.0
"""Shares of the strain that beams count; the wide ones try all."""
POLISHED = 3
"""How many of the best plans for the shortest time get their changes moved."""
EXCESS, FACTORS = (0.8, 1.0, 1.15, 1.5), (0.85, 1.0, 1.3, 1.8, 2.5)
"""By how much a lane's toll turns, by how many times too many changes it makes."""
HURRIED = 1.2
"""What holding a level too shortly counts for."""
TURNS, FIRST_TURNS = 4, 16
"""Tolls that are tried for a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """How often lanes may change level: each by itself, and all of a group together; None is without limit.

    Units: changes per second.
    Shape: ``group_of`` [lanes].
    """

    lane_per_s: float | None = None
    group_per_s: float | None = None
    group_of: Indices | None = None

    def none_in(self, time_s: float) -> bool:
        """Whether not even one lane may change in that time."""
        limits = [limit for limit in (self.lane_per_s, self.group_per_s) if limit is not None]
        return min(limits, default=np.inf) * time_s < 1.0

    def spare(self, changes: Ints, time_s: float) -> Ints:
        """How many changes each lane may still make; those of a group are shared out evenly.

        Shape: [lanes].
        """
        left = np.full(len(changes), np.iinfo(np.int64).max >> 1)
        if self.lane_per_s is not None:
            left = int(self.lane_per_s * time_s) - changes
        if self.group_per_s is not None:
            group_of = self.groups(len(changes))
            together = np.bincount(group_of, weights=changes)
            each = (int(self.group_per_s * time_s) - together) // np.bincount(group_of)
            left = np.minimum(left, each[group_of].astype(np.int64))
        return left

    def groups(self, lanes: int) -> Indices:
        """Group of every lane: all are one where nothing else is said."""
        return np.zeros(lanes, np.int32) if self.group_of is None else self.group_of

    def excess(self, changes: Ints, time_s: float) -> Floats:
        """How many times too many changes each lane makes; at most 1 where all is well.

        Shape: [lanes].
        """
        found = np.zeros(len(changes))
        if self.lane_per_s is not None:
            found = _ratio(changes, np.floor(self.lane_per_s * time_s))
        if self.group_per_s is not None:
            group_of = self.groups(len(changes))
            together = np.bincount(group_of, weights=changes)
            found = np.maximum(found, _ratio(together, np.floor(self.group_per_s * time_s))[group_of])
        return found


def _ratio(changes: Ints | Floats, allowed: Floats | float) -> Floats:
    allowed = np.broadcast_to(allowed, changes.shape)
    return np.where(
        changes > allowed, changes / np.maximum(allowed, 0.5), changes / np.maximum(allowed, 1.0) * 0.999
    )


def timelines(
    problem: Problem,
    frontier: Frontier,
    times_s: Floats,
    lanes: Lanes,
    allowance: Allowance,
    *,
    least_part_s: float = 0.0,
) -> Plans:
    """Choose levels for every wanted time, with no more changes than allowed; drop plans that another beats.

    ``choice`` is what an activity begins at, ``other`` what it ends at. No part of one that is split is
    shorter than ``least_part_s``; with an infinite one none is, but for what a lag does.

    Raises:
        InfeasibleError: a wanted time below T_min, or no plan for any of them changes so seldom.
    Cost: a beam for every time, some more where the toll has to be found.
    """
    frontier.refuse_below(times_s)
    wanted_s = np.sort(np.asarray(times_s)).tolist()
    narrow = min(max(ALL // (len(wanted_s) * len(problem)), NARROWEST), WIDTH)
    search = _Search(frontier, lanes, allowance, least_part_s, narrow)
    found = [search.first(wanted_s[0])] + [search.next(time_s) for time_s in wanted_s[1:]]
    rows = [row for row in found if row is not None]
    if not rows:
        raise InfeasibleError(search.complaint(), hint="allow more changes, or shorter dwelling")
    choice, other, share = (np.array(column) for column in zip(*rows, strict=True))
    duration_s, cost_j = blended(problem, choice, other, share)
    graph = frontier.whole.graph
    time_s = np.array([longest_float(graph, problem.delay_s, row) for row in duration_s])
    total_j = cost_j.sum(axis=1)
    best = undominated(time_s, total_j)
    bound_j = bounds_at(frontier, np.maximum(time_s, frontier.t_min_s))
    return Plans(time_s, total_j, bound_j, choice, other, share).at(best)


class _Search:
    """From time to time, ascending: the tolls that kept one budget are a good start for the next."""

    def __init__(
        self, frontier: Frontier, lanes: Lanes, allowance: Allowance, least_part_s: float, narrow: int
    ) -> None:
        self._frontier, self._lanes, self._allowance = frontier, lanes, allowance
        self._choices, self._levels = leveled(frontier.whole, lanes)
        self._least_part_s, self._narrow = least_part_s, narrow
        spans_j = [float(np.ptp(table.cost_j)) for table in frontier.whole.problem.tables]
        self._least_toll = 1e-3 * max(spans_j)
        self._floor = self._least_toll if lanes.dwell_s > 0.0 else 0.0  # haste is a multiple of it
        self._toll = np.full(len(lanes), self._floor)
        self._fewest = np.inf

    def first(self, time_s: float) -> Timeline | None:
        """The plan of the shortest time, which most users run: searched widely, its changes at their best."""
        found = []
        for _ in range(FIRST_TURNS):
            one = self._tried(time_s, WIDTH, LEANING[0])
            if one is not None:
                found.append(one)
                break
        wide = min(max(WORK // len(self._choices.first), WIDTH), WIDEST)
        for leaning in LEANING if found else ():
            one = self._tried(time_s, wide, leaning)
            if one is not None:
                found.append(one)
        found.sort(key=self._cost_j)
        timelines = [self._timeline(one) for one in found]
        if self._least_part_s < np.inf:
            moved = [self._polished(one, time_s) for one in found[:POLISHED]]
            timelines += [one for one in moved if not self._hurried(one).any()]
        timelines += self._uniform(time_s)
        return min(timelines, key=self._blended_j, default=None)

    def next(self, time_s: float) -> Timeline | None:
        """The cheapest plan found within a longer time; None where none was."""
        if self._allowance.none_in(time_s):
            return next(iter(self._uniform(time_s)), None)
        for _ in range(TURNS):
            one = self._tried(time_s, self._narrow, LEANING[0])
            if one is not None:
                return self._timeline(one)
        return next(iter(self._uniform(time_s)), None)

    def _tried(self, time_s: float, width: int, leaning: float) -> Levelled | None:
        """Search at the present tolls, turn them by what came of it; None where it changes too often."""
        one = self._searched(time_s, width, leaning)
        changes = self._changes(one.place)
        excess = self._allowance.excess(changes, time_s)
        excess = np.where(self._hurried(self._timeline(one)), np.maximum(excess, HURRIED), excess)
        self._fewest = min(self._fewest, float(changes.max()) / time_s)
        self._turn_toll(excess)
        return one if (excess <= 1.0).all() else None

    def _hurried(self, one: Timeline) -> NDArray[np.bool_]:
        """Lanes that hold a level for less than the dwell.

        Shape: [lanes].
        """
        if self._lanes.dwell_s == 0.0:
            return np.zeros(len(self._lanes), np.bool_)
        return shortest_holds_s(self._frontier.whole, self._lanes, one) < self._lanes.dwell_s * (1.0 - 1e-9)

    def _polished(self, one: Levelled, time_s: float) -> Timeline:
        spare = self._allowance.spare(self._changes(one.place), time_s)
        tick = self._frontier.whole.tick
        least_part = int(tick.whole(np.array(self._least_part_s)))
        freedom = freedom_of(
            self._choices, self._lanes, self._levels, one, least_part=least_part, spare=spare
        )
        return polished(self._frontier, freedom, time_s, least_part_s=self._least_part_s)

    def complaint(self) -> str:
        """Say how near a plan came to what is allowed."""
        return f"no plan changes a clock so seldom: the least found is {self._fewest:.3g} per second"

    def _turn_toll(self, excess: Floats) -> None:
        """Raise the toll of lanes that change too often; lower it a little where there is room."""
        factor = np.array(FACTORS)[np.searchsorted(EXCESS, excess)]
        toll = np.where(excess > 1.0, np.maximum(self._toll, self._least_toll), self._toll) * factor
        self._toll = np.where(toll < self._least_toll, self._floor, toll)

    def _searched(self, time_s: float, width: int, leaning: float) -> Levelled:
        whole, choices = self._frontier.whole, self._choices
        guide = guide_at(self._frontier, choices, time_s, whole.within(time_s))
        idle = np.zeros(len(choices.first), dtype=np.int64)
        for order in self._lanes.orders:
            idle[order[1:]] = np.maximum(guide.start[order[1:]] - guide.end[order[:-1]], 0)
        ahead = outlook(choices, self._lanes, self._levels, guide.price, idle, self._toll)
        found = levels_along(
            whole.graph, whole.delay, choices, self._levels, guide, ahead, self._toll, width, leaning
        )
        return Levelled(*found)

    def _changes(self, place: Indices) -> Ints:
        """How often each lane changes in an iteration, the way back to its beginning included."""
        level, orders = self._levels.level[place], self._lanes.orders
        return np.array([np.count_nonzero(level[order] != np.roll(level[order], 1)) for order in orders])

    def _cost_j(self, one: Levelled) -> float:
        return self._blended_j(self._timeline(one))

    def _blended_j(self, one: Timeline) -> float:
        return float(blended(self._frontier.whole.problem, *one)[1].sum())

    def _timeline(self, one: Levelled) -> Timeline:
        """What runs on at the level before does the first share of its work there."""
        choices, levels = self._choices, self._levels
        other = choices.option[one.place]
        choice, share = other.copy(), np.ones(len(other))
        for order in self._lanes.orders:
            before = np.roll(levels.level[one.place[order]], 1)
            slow = np.flatnonzero(one.late[order] > 0)
            old = levels.place[levels.table[order[slow]], before[slow]]
            choice[order[slow]] = choices.option[old]
            share[order[slow]] = np.ceil(one.late[order[slow]] / choices.length[old] * GRAIN) / GRAIN
        return Timeline(choice, other, np.minimum(share, 1.0))

    def _uniform(self, time_s: float) -> list[Timeline]:
        whole = self._frontier.whole
        place = one_level_each(whole, self._choices, self._lanes, self._levels, whole.within(time_s))
        return [] if place is None else [self._timeline(Levelled(place, np.zeros(len(place), np.int64)))]
