"""The cheapest timelines within a budget of changes: a toll for every change, raised until it is met."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.beam.beam import Guide, beam
from perseus_ds.solver.beam.guide import guide_at
from perseus_ds.solver.dual import bounds_at
from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.paths import longest_float
from perseus_ds.solver.plans import Plans, blended, undominated
from perseus_ds.solver.problem import Floats, Indices, Ints, Problem
from perseus_ds.solver.timeline.holding import changes_of, shortest_holds_s
from perseus_ds.solver.timeline.lanes import Lanes, leveled
from perseus_ds.solver.timeline.moments import Timelines, best_moments, freedom_of
from perseus_ds.solver.timeline.outlook import outlook_of
from perseus_ds.solver.timeline.uniform import one_level_each

FEWEST, MOST, ACTIVITIES = 24, 64, 50_000
"""Times that are searched at, as many as make so many activities; plans between them move their changes."""
NARROWEST, WIDEST = 16, 1024
"""Partial plans side by side, at least and at most."""
WORK, FIRST_WORK = 25_000, 400_000
"""Partial plans that one beam may continue, and one for the shortest time, whose plan most users run."""
LEANING, LEANINGS = 0.3, (0.3, 0.1, 0.6, 1.0)
"""Shares of the strain that beams count; those for the shortest time try all, at several tolls."""
SLANT, SLANTS = 0.8, (0.8, 0.0)
"""By how much tolls rise along a lane; for the shortest time they also stay level."""
ROUNDS = 3
"""How often these are moved again from where they came to."""
POLISHED = 3
"""How many of the best searches for the shortest time get their changes moved."""
EXCESS, FACTORS = (0.8, 0.95, 1.0, 1.15, 1.5), (0.85, 0.95, 1.0, 1.3, 1.8, 2.5)
"""By how much a lane's toll turns, by how many times too many changes it makes."""
HASTEN = 0.5
"""By how much more it turns each time that a lane still makes too many."""
HURRIED = 1.2
"""What holding a level too shortly counts for."""
TURNS, FIRST_TURNS = 8, 16
"""Tolls that are tried for a time."""
AS_LONG = 1.0 + 1e-9
"""Times that differ by less are one."""
REACH = 3
"""For how many anchors from its own a search is made plans of."""


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
    shorter than ``least_part_s``; with an infinite one none is.

    Raises:
        InfeasibleError: a wanted time below T_min, or no plan for any of them changes so seldom.
    Cost: a beam for each of some times, more where the toll has to be found, and a small frontier for each.
    """
    frontier.refuse_below(times_s)
    wanted_s = np.unique(np.asarray(times_s))
    anchors = _anchors(len(wanted_s), min(max(ACTIVITIES // len(problem), FEWEST), MOST))
    search = _Search(frontier, lanes, allowance, least_part_s)
    found: list[Timelines] = []
    for number, anchor in enumerate(anchors.tolist()):
        until = anchors[min(number + REACH, len(anchors) - 1)] + 1
        found += search.first(wanted_s[:until]) if number == 0 else search.next(wanted_s[anchor:until])
    choice, other, share = (np.concatenate(column) for column in zip(*found, strict=True))
    duration_s, cost_j = blended(problem, choice, other, share)
    graph = frontier.whole.graph
    time_s = np.array([longest_float(graph, problem.delay_s, row) for row in duration_s])
    kept = search.allowed(Timelines(choice, other, share), time_s)
    if not kept.any():
        raise InfeasibleError(search.complaint(), hint="allow more changes, or shorter dwelling")
    rows = np.flatnonzero(kept).astype(np.int32)
    total_j = cost_j.sum(axis=1)
    best = rows[undominated(time_s[rows], total_j[rows])]
    within = np.searchsorted(time_s[best], wanted_s * AS_LONG, side="right") - 1
    best = best[np.unique(np.maximum(within, 0))]
    bound_j = bounds_at(frontier, np.maximum(time_s, frontier.t_min_s))
    return Plans(time_s, total_j, bound_j, choice, other, share).at(best)


def _anchors(times: int, most: int) -> Indices:
    """Some of the times, the first and the last among them."""
    return np.unique(np.linspace(0, times - 1, min(times, most)).round()).astype(np.int32)


class _Search:
    """From time to time, ascending: the tolls that kept one budget are a good start for the next."""

    def __init__(self, frontier: Frontier, lanes: Lanes, allowance: Allowance, least_part_s: float) -> None:
        self._frontier, self._lanes, self._allowance = frontier, lanes, allowance
        self._choices, self._levels = leveled(frontier.whole, lanes)
        self._least_part_s = least_part_s
        tables, options = frontier.whole.problem.tables, self._choices.option
        self._place_of = np.full((len(tables), max(map(len, tables))), -1, np.int32)
        for activity, table in enumerate(frontier.whole.problem.table_of.tolist()):
            places = np.arange(self._choices.first[activity], self._choices.last[activity] + 1)
            self._place_of[table, options[places]] = places
        spans_j = [float(np.ptp(table.cost_j)) for table in frontier.whole.problem.tables]
        self._least_toll = 1e-3 * max(spans_j)
        self._width, self._widest = (
            min(max(work // len(self._choices.first), NARROWEST), WIDEST) for work in (WORK, FIRST_WORK)
        )
        self._floor = self._least_toll if lanes.dwell_s > 0.0 else 0.0  # haste is a multiple of it
        self._toll = np.full(len(lanes), self._floor)
        self._streak = np.zeros(len(lanes))
        self._fewest = np.inf

    def first(self, times_s: Floats) -> list[Timelines]:
        """Plans from the shortest time on, which most users run: searched widely."""
        time_s, found = float(times_s[0]), []
        for _ in range(FIRST_TURNS):
            one = self._tried(time_s, self._width, LEANING, SLANT)
            if one is not None:
                found.append(one)
                break
        for leaning, slant in product(LEANINGS, SLANTS) if found else ():
            one = self._tried(time_s, self._widest, leaning, slant)
            if one is not None:
                found.append(one)
        found = list({place.tobytes(): place for place in found}.values())
        found.sort(key=lambda place: float(self._choices.cost[place].sum()))
        return self._uniform(times_s[:1]) + [
            one for place in found[:POLISHED] for one in self._moved(place, times_s, ROUNDS)
        ]

    def next(self, times_s: Floats) -> list[Timelines]:
        """Plans from a longer time on."""
        time_s = float(times_s[0])
        if not self._allowance.none_in(time_s):
            for _ in range(TURNS):
                place = self._tried(time_s, self._width, LEANING, SLANT)
                if place is not None:
                    return self._moved(place, times_s)
        return self._uniform(times_s[:1])

    def allowed(self, found: Timelines, time_s: Floats) -> NDArray[np.bool_]:
        """Which plans change no more often than they may, and hold every level long enough.

        Shape: ``time_s`` [plans], also returned.
        """
        changes = changes_of(self._frontier.whole.problem, self._lanes, found)
        few = [(self._allowance.excess(*plan) <= 1.0).all() for plan in zip(changes, time_s, strict=True)]
        held = [not self._hurried(found.row(row)).any() for row in range(len(time_s))]
        return np.array(few, np.bool_) & np.array(held, np.bool_)

    def complaint(self) -> str:
        """Say how near a plan came to what is allowed."""
        return f"no plan changes a clock so seldom: the least found is {self._fewest:.3g} per second"

    def _tried(self, time_s: float, width: int, leaning: float, slant: float) -> Indices | None:
        """Search at the present tolls, turn them by what came of it; None where it changes too often."""
        place = self._searched(time_s, width, leaning, slant)
        one = self._whole(place)
        changes = changes_of(self._frontier.whole.problem, self._lanes, one)[0]
        excess = self._allowance.excess(changes, time_s)
        excess = np.where(self._hurried(one.row(0)), np.maximum(excess, HURRIED), excess)
        self._fewest = min(self._fewest, float(changes.max()) / time_s)
        self._turn_toll(excess)
        return place if (excess <= 1.0).all() else None

    def _hurried(self, one: Timelines) -> NDArray[np.bool_]:
        """Lanes that hold a level for less than the dwell.

        Shape: [lanes].
        """
        if self._lanes.dwell_s == 0.0:
            return np.zeros(len(self._lanes), np.bool_)
        return shortest_holds_s(self._frontier.whole, self._lanes, one) < self._lanes.dwell_s * (1.0 - 1e-9)

    def _moved(self, place: Indices, times_s: Floats, rounds: int = 1) -> list[Timelines]:
        """The plan as it was found, and with its changes at better moments for all times.

        The best of one round for the shortest time is where the next begins.
        """
        problem, found = self._frontier.whole.problem, [self._whole(place)]
        if np.isinf(self._least_part_s):
            return found
        time_s = float(times_s[0])
        price, ends = self._guide(time_s).price, (place, place)
        for _ in range(rounds):
            last = found[-1].first(1)
            spare = self._allowance.spare(changes_of(problem, self._lanes, last)[0], time_s)
            freedom = freedom_of(self._choices, self._lanes, self._levels, ends, price=price, spare=spare)
            found.append(best_moments(self._frontier, freedom, times_s, least_part_s=self._least_part_s))
            begin, end = (option[0] for option in found[-1][:2])
            ends = self._place_of[problem.table_of, begin], self._place_of[problem.table_of, end]
        return found

    def _guide(self, time_s: float) -> Guide:
        return guide_at(self._frontier, self._choices, time_s, self._frontier.whole.within(time_s))

    def _turn_toll(self, excess: Floats) -> None:
        """Raise the toll of lanes that change too often, faster each time; once none does, lower some."""
        factor, over = np.array(FACTORS)[np.searchsorted(EXCESS, excess)], excess > 1.0
        self._streak = np.where(over, self._streak + 1.0, 0.0)
        if over.any():
            factor = np.where(over, factor * (1.0 + HASTEN * (self._streak - 1.0)), 1.0)
        toll = np.where(over, np.maximum(self._toll, self._least_toll), self._toll) * factor
        self._toll = np.where(toll < self._least_toll, self._floor, toll)

    def _searched(self, time_s: float, width: int, leaning: float, slant: float) -> Indices:
        whole, choices, guide = self._frontier.whole, self._choices, self._guide(time_s)
        ahead = outlook_of(choices, self._lanes, self._levels, guide.price, self._toll, slant=slant)
        return beam(whole.graph, whole.delay, choices, guide, width, leaning, self._levels, ahead)

    def _whole(self, place: Indices) -> Timelines:
        """One plan without splits."""
        option = self._choices.option[place][None]
        return Timelines(option, option, np.ones(option.shape))

    def _uniform(self, times_s: Floats) -> list[Timelines]:
        whole = self._frontier.whole
        places = [
            one_level_each(whole, self._choices, self._lanes, self._levels, whole.within(float(time_s)))
            for time_s in times_s
        ]
        return [self._whole(place) for place in places if place is not None]
