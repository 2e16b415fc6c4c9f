"""The cheapest plans within a budget of changes: a toll for every change, raised until the budget is met."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError
from perseus_ds.solver.beam import BAND, Choices, Guide, Levels, beam, guide_at, places_within
from perseus_ds.solver.compiled import tiered
from perseus_ds.solver.frontier import Frontier, bounds_at, solve_frontier
from perseus_ds.solver.network import Whole, earliest_starts, longest_seconds
from perseus_ds.solver.prices import (
    COUNTED,
    Allowance,
    Lanes,
    Prices,
    Rung,
    leveled,
    outlook_of,
    packed,
    priced,
)
from perseus_ds.solver.problem import (
    Floats,
    Indices,
    Ints,
    OptionTable,
    Plans,
    Problem,
    blended,
    long_enough,
    undominated,
)
from perseus_ds.solver.splits import optimal_shares

__all__ = ["Allowance", "Lanes", "timelines"]

# Which changes of a plan may move into an activity, and which activities may change once more.

Flags = NDArray[np.bool_]


class Freedom(NamedTuple):
    """The two options of each activity; where they differ, any share of its work may be done at the first.

    Shape: [activities] each.
    """

    choice: Indices
    other: Indices


class Stand(NamedTuple):
    """A plan, lane behind lane: the levels that activities begin and end at, and those around them.

    ``row`` has the places of an activity's levels, ``is_last`` states where a lane ends.

    Shape: ``row`` [activities of lanes, levels]; the others [activities of lanes].
    """

    order: Indices
    lane: Indices
    begin: Indices
    end: Indices
    before: Indices
    after: Indices
    row: Indices
    is_last: Flags


class Moves(NamedTuple):
    """Changes that may fall inside an activity: what that begins and ends at, and what it adds to a lane.

    ``worth`` is what the relaxed optimum's price sees between the two: little where it wants a mixture.
    ``takes_before`` and ``takes_after`` are the boundaries around it that it takes for itself.

    Shape: [moves].
    """

    worth: Floats
    at: Ints
    first: Indices
    last: Indices
    more: Indices
    takes_before: Flags
    takes_after: Flags


def freedom_of(
    choices: Choices,
    lanes: Lanes,
    levels: Levels,
    places: tuple[Indices, Indices],
    *,
    price: Floats,
    spare: Ints,
) -> Freedom:
    """Return which changes may move, and which activities may change once more.

    A change between two activities may fall into the one before it or the one behind it. An activity may go
    on at the level beside its own where its lane has changes to spare. Those come first that the price is
    most indifferent about; what is split already stays so.

    Shape: ``places`` that activities begin and end at, ``price`` [activities]; ``spare`` [lanes]: changes
    that a lane may still make.
    """
    choice, other = (choices.option[place] for place in places)
    stand = _stand(lanes, levels, places)
    moves = _moves(choices, stand, price)
    taken = _taken(moves, stand.lane, spare.copy())
    at, first, last = moves.at[taken], moves.first[taken], moves.last[taken]
    choice[stand.order[at]] = choices.option[stand.row[at, first]]
    other[stand.order[at]] = choices.option[stand.row[at, last]]
    return Freedom(choice, other)


def _stand(lanes: Lanes, levels: Levels, places: tuple[Indices, Indices]) -> Stand:
    order = np.concatenate(lanes.orders)
    lane = np.repeat(np.arange(len(lanes), dtype=np.int32), list(map(len, lanes.orders)))
    is_last = np.append(lane[1:] != lane[:-1], np.True_)
    begin, end = (levels.level[place[order]] for place in places)
    before = np.where(np.roll(is_last, 1), begin, np.roll(end, 1))
    after = np.where(is_last, end, np.roll(begin, -1))
    return Stand(order, lane, begin, end, before, after, levels.place[levels.table[order]], is_last)


def _moves(choices: Choices, stand: Stand, price: Floats) -> Moves:
    """All changes that may fall inside an activity that is whole, the most indifferent ones first."""
    row, here, every = stand.row, stand.begin, np.arange(len(stand.order))
    worth = choices.cost[row] + price[stand.order][:, None] * choices.length[row]
    apart = np.where(row >= 0, np.abs(worth - worth[every, here][:, None]), np.inf)
    whole, inner = here == stand.end, ~stand.is_last
    more = np.where(stand.after == here, 2, 1).astype(np.int32)
    columns = []
    for level, into, allowed, adds, takes in (
        (stand.before, True, stand.before != here, 0 * more, (True, False)),
        (stand.after, False, stand.after != here, 0 * more, (False, True)),
        *((level, False, inner & (level != stand.after), more, (True, True)) for level in _beside(row, here)),
    ):
        at = np.flatnonzero(whole & allowed & (level >= 0) & (row[every, level] >= 0))
        first, last = (level, here) if into else (here, level)
        flags = (np.full(len(at), taken) for taken in takes)
        columns.append((apart[at, level[at]], at, first[at], last[at], adds[at], *flags))
    moves = Moves(*map(np.concatenate, zip(*columns, strict=True)))
    ranks = np.lexsort((moves.last, moves.first, moves.at, moves.worth))
    return Moves._make(column[ranks] for column in moves)


def _beside(row: Indices, level: Indices) -> tuple[Indices, Indices]:
    """The next higher and the next lower level that each activity has; below zero if it has no such level.

    Shape: ``row`` [activities, levels]; returns [activities] twice.
    """
    width = row.shape[1]
    number = np.broadcast_to(np.arange(width, dtype=np.int32), row.shape)
    higher = np.where((row >= 0) & (number < level[:, None]), number, -1).max(axis=1)
    lower = np.where((row >= 0) & (number > level[:, None]), number, width).min(axis=1)
    return higher, np.where(lower < width, lower, -1).astype(np.int32)


@tiered
def _taken(moves: Moves, lane: Indices, spare: Ints) -> Flags:
    """Take one move after the other where its lane can bear it, and nothing around it is taken.

    Shape: returns [moves].
    """
    count = len(lane)
    is_mixed, is_held = np.zeros(count, np.bool_), np.zeros(count + 1, np.bool_)
    taken = np.zeros(len(moves.at), np.bool_)
    for which in range(len(moves.at)):
        at, more = moves.at[which], moves.more[which]
        before, after = moves.takes_before[which], moves.takes_after[which]
        if is_mixed[at] or more > spare[lane[at]] or (before and is_held[at]) or (after and is_held[at + 1]):
            continue
        taken[which] = is_mixed[at] = True
        is_held[at] |= before
        is_held[at + 1] |= after
        spare[lane[at]] -= more
    return taken


# When lanes change level: at the best moments, how often, and for how long each holds one.
#
# Where a change falls within an activity is a linear program again.

AS_LONG = 1.0 + 1e-9
"""Times that differ by less are one."""


class Timelines(NamedTuple):
    """Level at which every activity begins and ends, and the share of its work before the change.

    Shape: [plans, activities] each; ``choice`` and ``other`` are positions in the option tables.
    """

    choice: Indices
    other: Indices
    share: Floats

    def row(self, plan: int) -> Timelines:
        """A plan: [activities] each."""
        return Timelines(self.choice[plan], self.other[plan], self.share[plan])

    def first(self, plans: int) -> Timelines:
        """The first few plans."""
        return Timelines(self.choice[:plans], self.other[:plans], self.share[:plans])


def best_moments(frontier: Frontier, freedom: Freedom, times_s: Floats, *, least_part_s: float) -> Timelines:
    """Choose all shares at once, for many times: the exact optimum for these changes within each.

    Every activity becomes one with its two options. The problem is of the same kind, and its relaxed optimum
    is run exactly, but for parts shorter than ``least_part_s``.

    Cost: a small frontier, and linear in activities per time.
    """
    problem = frontier.whole.problem
    small_problem = _with_two_options(problem, freedom)
    until_s = max(float(np.max(times_s)), frontier.t_min_s) * AS_LONG
    down_to_s = float(np.min(times_s))
    small = solve_frontier(small_problem, until_s=until_s, down_to_s=down_to_s, around_s=times_s)
    within_s = np.unique(np.clip(times_s, small.t_min_s, small.t_star_s))
    share = _share_of_first(*optimal_shares(small, within_s, 0.0))
    choice, other = (np.broadcast_to(option, share.shape) for option in freedom)
    ones = np.ones(share.shape)
    first_s, rest_s = (blended(problem, option, option, ones)[0] for option in (choice, other))
    faster = first_s < rest_s
    fast = long_enough(
        np.where(faster, share, 1.0 - share),
        np.minimum(first_s, rest_s),
        np.maximum(first_s, rest_s),
        least_part_s,
    )
    share = np.where(choice == other, 1.0, np.where(faster, fast, 1.0 - fast))
    begins = np.where(share > 0.0, choice, other)
    ends = np.where(share < 1.0, other, choice)
    return Timelines(begins, ends, np.where(begins == ends, 1.0, share))


def _with_two_options(problem: Problem, freedom: Freedom) -> Problem:
    key = np.column_stack((problem.table_of, *freedom))
    rows, number = np.unique(key, axis=0, return_inverse=True)
    tables = []
    for table, *options in rows:
        own, kept = problem.tables[table], list(dict.fromkeys(options))
        tables.append(OptionTable(own.duration_s[kept], own.cost_j[kept]))
    return Problem(
        tuple(tables), number.reshape(-1).astype(np.int32), problem.before, problem.after, problem.delay_s
    )


def _share_of_first(choice: Indices, other: Indices, share: Floats) -> Floats:
    """The share done at option 0 of two; 1 where there is one alone."""
    return np.where(choice == 0, share, 0.0) + np.where(other == 0, 1.0 - share, 0.0)


def changes_of(problem: Problem, lanes: Lanes, found: Timelines) -> Ints:
    """Return how often each lane changes in an iteration, the way back to its beginning included.

    Shape: returns [plans, lanes].
    """
    counts = []
    for order in lanes.orders:
        begin, end = (_levels(lanes, problem.table_of[order], option[:, order]) for option in found[:2])
        counts.append((begin != np.roll(end, 1, axis=1)).sum(axis=1) + (begin != end).sum(axis=1))
    return np.column_stack(counts)


def shortest_holds_s(whole: Whole, lanes: Lanes, timeline: Timelines) -> Floats:
    """The shortest time that each lane holds a level, activities starting as early as they can.

    Iteration follows iteration, so the last level is held into the next. Infinite where nothing changes.

    Shape: ``timeline`` one row of ``Timelines``; returns [lanes].
    """
    problem = whole.problem
    ones = np.ones(len(timeline.share))
    first_s, _ = blended(problem, timeline.choice, timeline.choice, ones)
    duration_s, _ = blended(problem, *timeline)
    duration = whole.tick.whole(duration_s)
    start = earliest_starts(whole.graph, whole.delay, duration)
    start_s = whole.tick.real(start)
    lasts_s = float(whole.tick.real((start + duration).max()))
    inside_s = start_s + timeline.share * first_s
    holds_s = np.full(len(lanes), np.inf)
    for lane, order in enumerate(lanes.orders):
        begin, end = (_levels(lanes, problem.table_of[order], option[order]) for option in timeline[:2])
        changed = begin != np.roll(end, 1), begin != end
        changes_s = np.sort(np.concatenate((start_s[order][changed[0]], inside_s[order][changed[1]])))
        if len(changes_s):
            holds_s[lane] = np.diff(changes_s, append=changes_s[0] + lasts_s).min()
    return holds_s


def _levels(lanes: Lanes, table: Indices, option: Indices) -> Indices:
    """Levels of options: activities of these tables, last axis."""
    first = np.concatenate(([0], np.cumsum([len(own) for own in lanes.level_of])))[table]
    return np.asarray(np.concatenate(lanes.level_of)[first + option])


# One level per lane from beginning to end: what is left where no lane may change at all.


def one_level_each(
    whole: Whole, choices: Choices, lanes: Lanes, levels: Levels, wanted: int
) -> Indices | None:
    """Lower the lane that gains most per step while the longest path keeps the wanted ticks.

    None where not even the fastest common level of every lane keeps it.

    Shape: returns places [activities].
    Cost: lanes times levels squared longest paths.
    """
    place = choices.first.copy()
    common = [_common(levels, order) for order in lanes.orders]
    if not all(map(len, common)):
        return None
    at = [0] * len(lanes)
    for lane, order in enumerate(lanes.orders):
        place[order] = levels.place[levels.table[order], common[lane][0]]
    if whole.longest(choices.length[place]) > wanted:
        return None
    spent_j = [_spent_j(choices, levels, order, own) for order, own in zip(lanes.orders, common, strict=True)]
    open_lanes = set(range(len(lanes)))
    while open_lanes:
        lower = {lane: _lower(spent_j[lane], at[lane]) for lane in open_lanes}
        gains = {lane: spent_j[lane][at[lane]] - spent_j[lane][step] for lane, step in lower.items() if step}
        open_lanes &= set(gains)
        for lane in sorted(gains, key=gains.__getitem__, reverse=True):
            moved, order = place.copy(), lanes.orders[lane]
            moved[order] = levels.place[levels.table[order], common[lane][lower[lane]]]
            if whole.longest(choices.length[moved]) <= wanted:
                place, at[lane] = moved, lower[lane]
                break
            open_lanes.discard(lane)
    return place


def _common(levels: Levels, order: Indices) -> Indices:
    """Levels that every activity of a lane has."""
    return np.flatnonzero((levels.place[levels.table[order]] >= 0).all(axis=0)).astype(np.int32)


def _spent_j(choices: Choices, levels: Levels, order: Indices, common: Indices) -> list[float]:
    """Return what a lane costs at each of its common levels."""
    return [float(choices.cost[levels.place[levels.table[order], level]].sum()) for level in common]


def _lower(spent_j: list[float], at: int) -> int:
    """The next lower level that costs less; 0 if no lower level does."""
    return next((step for step in range(at + 1, len(spent_j)) if spent_j[step] < spent_j[at]), 0)


# The least of some turns that succeeds, looked for from where the last one did.

T = TypeVar("T")


def least_turn(attempt: Callable[[int], T | None], *, begin: int, turns: int) -> tuple[int, T] | None:
    """Return the least turn from which on attempts succeed, and what it found; None where none below does.

    ``attempt`` returns None where a turn fails. Where those below a success all fail, this is the first
    success of them all. Where ``begin`` is near it, few turns are tried.

    Cost: every turn on the way up; on the way down about twice the logarithm of their number.
    """
    for turn in range(begin, turns):
        if (found := attempt(turn)) is not None:
            return _down(attempt, turn, found) if turn == begin else (turn, found)
    return None


def _down(attempt: Callable[[int], T | None], turn: int, found: T) -> tuple[int, T]:
    """Go down from a success in steps that double, then halve what lies between it and a turn that fails."""
    fails, step = -1, 1
    while turn - 1 > fails:
        lower = max(turn - step, (turn + fails) // 2)
        if (other := attempt(lower)) is None:
            fails = lower
        else:
            turn, found, step = lower, other, 2 * step
    return turn, found


FEWEST, MOST, ACTIVITIES = 24, 64, 50_000
"""Times that are searched at, as many as make so many activities; plans between them move their changes."""
NARROWEST, WIDEST = 16, 1024
"""Partial plans side by side, at least and at most."""
WORK, FIRST_WORK = 25_000, 400_000
"""Partial plans that one beam may continue, and one for the shortest time, whose plan most users run."""
LEANING, LEANINGS = 0.3, (0.1, 0.3, 1.0)
"""Shares of the strain that beams count; those for the shortest time try all."""
ROUNDS = 3
"""How often changes are moved again from where they came to."""
POLISHED = 3
"""How many of the best searches for the shortest time get their changes moved."""
TURNS, MOST_TURNS, TURN = 14, 28, 1.25
"""How often tolls are raised where lanes change too often, from none and in all; by how much."""
FACTORS = 0.7, 1.0, 1.5
"""Of these tolls, for the shortest time."""
FEWER = 0.7
"""Share of a rung's changes that prices are made for: the others keep lanes in step."""
LADDER = 400
"""Activities up to which stricter rungs are searched for the shortest time, not the budget's own alone."""
LARGE = 2_000
"""Activities from which on only the best of these searches is moved, and once."""
REACH = 3
"""For how many anchors from its own a search is made plans of."""
_NONE = 2**62


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
    search = _TimelineSearch(frontier, lanes, allowance, least_part_s)
    found: list[Timelines] = []
    for number, anchor in enumerate(anchors.tolist()):
        until = anchors[min(number + REACH, len(anchors) - 1)] + 1
        found += search.plans(wanted_s[anchor:until], first=number == 0)
    if not found:
        raise InfeasibleError(search.complaint(), hint="allow more changes")
    choice, other, share = (np.concatenate(column) for column in zip(*found, strict=True))
    blends = (blended(problem, *some) for some in found)  # a few at a time: they fit in the cache
    duration_s, cost_j = (np.concatenate(column) for column in zip(*blends, strict=True))
    time_s = longest_seconds(problem, frontier.whole.graph, duration_s)
    kept = search.allowed(Timelines(choice, other, share), time_s)
    if not kept.any():
        raise InfeasibleError(search.complaint(), hint="allow more changes")
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


class _TimelineSearch:
    """Plans for one time after another, each by itself."""

    def __init__(self, frontier: Frontier, lanes: Lanes, allowance: Allowance, least_part_s: float) -> None:
        self._frontier, self._lanes, self._allowance = frontier, lanes, allowance
        self._choices, self._levels = leveled(frontier.whole, lanes)
        self._packed = packed(lanes.orders)
        self._least_part_s = least_part_s
        tables, options = frontier.whole.problem.tables, self._choices.option
        self._place_of = np.full((len(tables), max(map(len, tables))), -1, np.int32)
        for activity, table in enumerate(frontier.whole.problem.table_of.tolist()):
            places = np.arange(self._choices.first[activity], self._choices.last[activity] + 1)
            self._place_of[table, options[places]] = places
        span_j = max(float(np.ptp(table.cost_j)) for table in frontier.whole.problem.tables)
        self._least_toll = 1e-3 * span_j
        self._width, self._widest = (
            min(max(work // len(self._choices.first), NARROWEST), WIDEST) for work in (WORK, FIRST_WORK)
        )
        self._fewest = _NONE
        self._raised = 0  # how often tolls were raised for the plan before

    def plans(self, times_s: Floats, *, first: bool) -> list[Timelines]:
        """Plans for the first time, moved to the others: of the budget's rung, and of stricter ones as well.

        What a stricter rung finds is allowed here too. Rungs are searched alike for every caller, and left
        out only where their bound proves that they find nothing better. So a budget never gets a worse plan
        than a stricter one. So it is for the shortest time of problems that are not large. Else the budget's
        own number of changes is searched, and rungs only where that finds nothing.
        """
        time_s = float(times_s[0])
        found = self._uniform(times_s[:1])
        least_j = min(map(self._cost_j, found), default=np.inf)
        asked = self._allowance.within(time_s, len(self._lanes))
        if asked.none:
            return found
        alone = not first or len(self._choices.first) > LADDER
        for rung in asked.from_itself() if alone else asked.down():
            own = self._priced(time_s, rung) if first else None
            if own is not None and own.bound >= least_j and found:
                break
            plans = self._searched(times_s, rung, own)
            least_j = min([least_j, *map(self._cost_j, plans)])
            found += plans
            if alone and plans:
                break
        return found

    def allowed(self, found: Timelines, time_s: Floats) -> NDArray[np.bool_]:
        """Return which plans change no more often than they may, and hold every level long enough.

        Shape: ``time_s`` [plans], also returned.
        """
        changes = changes_of(self._frontier.whole.problem, self._lanes, found)
        few = [
            self._allowance.within(float(lasts_s), len(self._lanes)).allows(own)
            for own, lasts_s in zip(changes, time_s, strict=True)
        ]
        held = [not self._hurried(found.row(row)).any() for row in range(len(time_s))]
        return np.array(few, np.bool_) & np.array(held, np.bool_)

    def complaint(self) -> str:
        """Return how near a plan came to what is allowed."""
        if self._fewest == _NONE:
            return "no plan changes a clock so seldom, none was found at all"
        return f"no plan changes a clock so seldom: the least found is {self._fewest} in an iteration"

    def _priced(self, time_s: float, rung: Rung) -> Prices:
        whole, guide = self._frontier.whole, self._guide(time_s)
        flows, wanted = (guide.price, guide.toll), whole.within(time_s)
        return priced(whole, self._choices, self._levels, self._packed, rung, flows, wanted)

    def _searched(self, times_s: Floats, rung: Rung, own: Prices | None) -> list[Timelines]:
        """Search at prices of fewer changes, which leave some to keep in step.

        With the rung's own prices, for the shortest time, at those as well, and widely.
        """
        time_s, first = float(times_s[0]), own is not None
        tried: list[Indices | None] = []
        fewer = self._priced(time_s, rung.part(FEWER))
        for one in (fewer,) if own is None else (fewer, own):
            guide = self._follow(time_s, one)
            place, toll, most = self._at_least_tolls(rung, guide, one, first=first)
            tried.append(place)
            for leaning, factor in product(LEANINGS, FACTORS) if first else ():
                tried.append(self._tried(rung, guide, factor * toll, one.home, most, self._widest, leaning))
        found = list({place.tobytes(): place for place in tried if place is not None}.values())
        found.sort(key=lambda place: float(self._choices.cost[place].sum()))
        many = first and len(self._choices.first) < LARGE
        rounds, best = (ROUNDS, POLISHED) if many else (1, 1)
        return [one for place in found[:best] for one in self._moved(place, times_s, rung, rounds)]

    def _at_least_tolls(
        self, rung: Rung, guide: Guide, prices: Prices, *, first: bool
    ) -> tuple[Indices | None, Floats, int | None]:
        """Places of a plan, None where lanes change too often at all tolls; the last tolls and counts tried.

        Tolls begin as often raised as they were for the plan before: times next to each other need about the
        same. They begin at the prices' own for the shortest time. So they do where levels are held for a
        dwell, since a plan may hurry at higher tolls and not at lower ones.
        """

        def attempt(turn: int) -> tuple[Indices, Floats, int | None] | None:
            toll, most = self._raised_tolls(rung, prices.toll, turn)
            place = self._tried(rung, guide, toll, prices.home, most, self._width, LEANING)
            return None if place is None else (place, toll, most)

        anew = first or self._lanes.dwell_s > 0.0
        begin, turns = (0, TURNS) if anew else (self._raised, MOST_TURNS)
        found = least_turn(attempt, begin=begin, turns=turns)
        if found is None:
            return None, *self._raised_tolls(rung, prices.toll, turns)
        self._raised = self._raised if first else found[0]
        return found[1]

    def _raised_tolls(self, rung: Rung, toll: Floats, turns: int) -> tuple[Floats, int | None]:
        """Tolls after so many turns, and how many changes are counted then.

        Changes are counted after the first try where there is room for it; else tolls rise.
        """
        most = self._counted(rung) if turns else None
        if self._lanes.dwell_s > 0.0:  # haste is a multiple of it
            toll = np.maximum(toll, self._least_toll)
        for _ in range(turns if most is None else turns - 1):
            toll = TURN * np.maximum(toll, self._least_toll)
        return toll, most

    def _tried(  # noqa: PLR0917
        self,
        rung: Rung,
        guide: Guide,
        toll: Floats,
        home: Indices,
        most: int | None,
        width: int,
        leaning: float,
    ) -> Indices | None:
        """Places of a plan; None where a lane changes too often or too hurriedly."""
        whole, choices = self._frontier.whole, self._choices
        ahead = outlook_of(
            whole.problem.tables, choices, self._lanes, self._levels, guide.price, toll, home, most
        )
        place = beam(whole.graph, whole.delay, choices, guide, width, leaning, self._levels, ahead)
        one = self._whole(place)
        changes = changes_of(whole.problem, self._lanes, one)[0]
        self._fewest = min(self._fewest, int(changes.max()))
        return place if rung.allows(changes) and not self._hurried(one.row(0)).any() else None

    def _counted(self, rung: Rung) -> int | None:
        size = len(self._lanes) * max(map(len, self._lanes.orders)) * self._levels.place.shape[1]
        return rung.lane if rung.lane is not None and (rung.lane + 1) * size <= COUNTED else None

    def _hurried(self, one: Timelines) -> NDArray[np.bool_]:
        """Lanes that hold a level for less than the dwell.

        Shape: [lanes].
        """
        if self._lanes.dwell_s == 0.0:
            return np.zeros(len(self._lanes), np.bool_)
        return shortest_holds_s(self._frontier.whole, self._lanes, one) < self._lanes.dwell_s * (1.0 - 1e-9)

    def _moved(self, place: Indices, times_s: Floats, rung: Rung, rounds: int) -> list[Timelines]:
        """The plan as it was found, and with its changes at better moments for all times.

        The best of one round for the shortest time is where the next begins.
        """
        problem, found = self._frontier.whole.problem, [self._whole(place)]
        if np.isinf(self._least_part_s):
            return found
        ends, price = (place, place), self._guide(float(times_s[0])).price
        for _ in range(rounds):
            last = found[-1].first(1)
            spare = rung.spare(changes_of(problem, self._lanes, last)[0])
            freedom = freedom_of(self._choices, self._lanes, self._levels, ends, price=price, spare=spare)
            found.append(best_moments(self._frontier, freedom, times_s, least_part_s=self._least_part_s))
            begin, end = (option[0] for option in found[-1][:2])
            ends = self._place_of[problem.table_of, begin], self._place_of[problem.table_of, end]
        return found

    def _cost_j(self, one: Timelines) -> float:
        """Return what the first plan costs."""
        return float(blended(self._frontier.whole.problem, *one.first(1))[1].sum())

    def _guide(self, time_s: float) -> Guide:
        return guide_at(self._frontier, self._choices, time_s, self._frontier.whole.within(time_s))

    def _follow(self, time_s: float, prices: Prices) -> Guide:
        """The relaxed optimum's times, this rung's prices, and the places of both."""
        choices, guide = self._choices, self._guide(time_s)
        mean = places_within(choices, prices.mean)
        return guide._replace(
            price=prices.price,
            toll=prices.across,
            low=np.minimum(guide.low, np.maximum(choices.first, mean - BAND)),
            high=np.maximum(guide.high, np.minimum(choices.last, mean + 1 + BAND)),
        )

    def _whole(self, place: Indices) -> Timelines:
        """A plan without splits."""
        option = self._choices.option[place][None]
        return Timelines(option, option, np.ones(option.shape))

    def _uniform(self, times_s: Floats) -> list[Timelines]:
        whole = self._frontier.whole
        places = [
            one_level_each(whole, self._choices, self._lanes, self._levels, whole.within(float(time_s)))
            for time_s in times_s
        ]
        return [self._whole(place) for place in places if place is not None]
