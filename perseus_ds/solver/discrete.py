"""Plans within a budget of level changes: prices of time, and a dynamic program for each lane.

A lane is a machine (a GPU) that runs activities in turn, each at a level (a clock); changing it counts. With
a price of time for every activity (a flow through the graph) and a tax on every change, each lane by itself
is a shortest path over (activity, level). Prices begin with the flow of the exact frontier and move towards
the longest path (the step of Frank and Wolfe); taxes follow the changes until a lane keeps its budget. The
best answers are made to fit the wanted time, levels are exchanged between lanes, and changes move to the best
moment inside activities (the exact sweep on two options each). One level for each lane is the budget of no
change.

Source: Frank and Wolfe 1956; Geoffrion 1974 (Lagrangian relaxation).
"""
# ruff: noqa: PLR0912, PLR0917, PLR2004, C901 - compiled code: arguments by position, loops written out

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import InfeasibleError
from perseus_ds.schedule.dag import Graph
from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.frontier import Frontier, solve_frontier
from perseus_ds.solver.network import longest_seconds
from perseus_ds.solver.problem import (
    UNLIMITED,
    Budget,
    Floats,
    Indices,
    Ints,
    Lanes,
    OptionTable,
    Plans,
    Problem,
    blend,
    changes_between,
    long_enough,
    pareto_front,
)
from perseus_ds.solver.splits import corner_durations
from perseus_ds.solver.sweep import pop, push

AS_LONG = 1.0 + 1e-9
"""Times that differ by less are one."""
FEWEST, MOST, ACTIVITIES = 24, 64, 50_000
"""Times at least that are searched at, more where they make so many activities; between them changes move."""
REACH = 3
"""For how many anchors from its own a search moves its changes."""
MOST_TURNS, TURNS, BEGIN = 1_000, 30, 40
"""Price iterations: ten for each activity, as far as the work allows, at most and at least so many; the first
step's divisor."""
MOST_FITTED, FITTED = 300, 2
"""Answers that are made to fit, likewise, two for each activity."""
FIRST_KEPT, KEPT, KICKS = 10, 2, 5
"""Plans for the shortest time and for others whose levels are exchanged, likewise, twenty times for each
activity; one in how many exchanges is tried at random afterwards."""
FIRST_WORK, WORK = (1_000_000, 200_000, 500_000), (20_000, 2_000, 4_000)
"""Activities that iterations, answers and exchanges of one plan may make, for the shortest time, which most
users run, and for others."""
LADDER = 100
"""Activities up to which stricter budgets are searched too, so that a looser one is never worse."""
MOVED, ROUNDS, LARGE = 3, 4, 2_000
"""Plans for the shortest time that get their changes moved, and how often each. From so many activities on it
is one, and twice; nothing is exchanged, and few answers are made to fit."""
LATE = 3.0
"""Multiple of the price of time that an answer pays for being late, where answers are ranked."""
NO_TAX = 1e-6
"""A tax in joules that keeps nobody from a change."""


BudgetWithin = Callable[[float], Budget]
"""The changes that lanes may make in an iteration of so many seconds."""


class Timelines(NamedTuple):
    """Options that every activity begins and ends at, and the share of its work before the change.

    Shape: [plans, activities] each; ``choice`` and ``other`` are positions in the option tables.
    """

    choice: Indices
    other: Indices
    share: Floats


class Levels(NamedTuple):
    """The options of all tables by level; -1 and of infinite cost where a table has none.

    Shape: [tables, levels].
    """

    option: Indices
    duration_s: Floats
    cost_j: Floats


class Moves(NamedTuple):
    """Stretches of activities of a lane at one level, and the level that they may move to, in a heap by rank.

    ``step`` is 1 where they are lowered, -1 where they are raised.

    Shape: [moves].
    """

    step: int
    lane: Ints
    begin: Ints
    size: Ints
    level: Ints
    to: Ints
    rank: Floats
    heap: Ints


class Game(NamedTuple):
    """Graph, options and lanes, as compiled code reads them; the taxes of the last search; scratch arrays.

    A tax is what each change costs in joules, so that lanes, and the groups behind them, keep their budget.
    A lane begins at the level ``home``. Scratch arrays are of a lane's path, of the longest path, of another
    answer, and of moves. ``cap`` is the lowest level that each activity may have.

    Shape: ``table``, ``fixed_s`` [activities], the latter 0 on lanes; ``first`` [lanes + 1],
    ``order`` [activities of lanes]; ``tax`` [lanes + groups]; ``home`` [lanes]; ``paid`` [levels], ``back``
    [activities of lanes, levels]; ``start_s``, ``lasts_s``, ``late_s``, ``via``, ``cap``, ``trial``
    [activities]; ``trial_tax``, ``trial_home`` as ``tax`` and ``home``.
    """

    graph: Graph
    delay_s: Floats
    table: Indices
    levels: Levels
    fixed_s: Floats
    first: Ints
    order: Ints
    tax: Floats
    home: Ints
    paid: Floats
    back: NDArray[np.int16]
    start_s: Floats
    lasts_s: Floats
    late_s: Floats
    via: Ints
    cap: Indices
    trial: Indices
    trial_tax: Floats
    trial_home: Ints
    lowering: Moves
    raising: Moves


class Answers(NamedTuple):
    """Prices, the levels that lanes answered with, how good they are, and what they cost in time (else inf).

    Shape: ``price_w``, ``level`` [turns, activities]; ``score``, ``cost_j`` [turns].
    """

    price_w: Floats
    level: Indices
    score: Floats
    cost_j: Floats


def timelines(
    frontier: Frontier, times_s: Floats, lanes: Lanes, within: BudgetWithin, *, least_part_s: float = 0.0
) -> Plans:
    """Choose levels for every wanted time, with no more changes than allowed; drop plans that another beats.

    ``within`` states what is allowed in an iteration of a length. ``choice`` is what an activity begins at,
    ``other`` what it ends at. No part of one that is split is shorter than ``least_part_s``; with an infinite
    one none is split.

    Raises:
        InfeasibleError: a wanted time below T_min, or no plan for any of them changes so seldom.
    Cost: some dozens of dynamic programs for each of some times, and a small frontier for each.
    """
    frontier.refuse_below(times_s)
    problem, wanted_s = frontier.whole.problem, np.unique(np.asarray(times_s))
    count = min(len(wanted_s), MOST, max(ACTIVITIES // len(problem), FEWEST))
    anchors = np.unique(np.linspace(0, len(wanted_s) - 1, count).round()).astype(np.int32)
    search = _Search(frontier, lanes, within, least_part_s)
    found: list[Timelines] = []
    for number, anchor in enumerate(anchors.tolist()):
        until = anchors[min(number + REACH, len(anchors) - 1)] + 1
        found += search.plans(wanted_s[anchor:until], first=number == 0)
    rows = np.zeros(0, np.int32)
    if found:
        choice, other, share = (np.concatenate(column) for column in zip(*found, strict=True))
        blends = [blend(problem, *some) for some in found]  # a few at a time: they fit in the cache
        duration_s, cost_j = (np.concatenate(column) for column in zip(*blends, strict=True))
        time_s, total_j = longest_seconds(problem, frontier.whole.graph, duration_s), cost_j.sum(axis=1)
        changes = changes_of(problem, lanes, Timelines(choice, other, share))
        few = [within(lasts_s).allows(own) for lasts_s, own in zip(time_s.tolist(), changes, strict=True)]
        rows = np.flatnonzero(few).astype(np.int32)
    if not len(rows):
        raise InfeasibleError("no plan changes a clock so seldom", hint="allow more changes")
    best = rows[pareto_front(time_s[rows], total_j[rows])]
    fits = np.searchsorted(time_s[best], wanted_s * AS_LONG, side="right") - 1
    best = best[np.unique(np.maximum(fits, 0))]
    return Plans(time_s, total_j, frontier.bounds_at(time_s), choice, other, share).at(best)


def changes_of(problem: Problem, lanes: Lanes, found: Timelines) -> Ints:
    """Return how often each lane changes in an iteration, the way back to its beginning included.

    Shape: returns [plans, lanes].
    """
    first = np.concatenate(([0], np.cumsum([len(own) for own in lanes.level_of])))[problem.table_of]
    level_of = np.concatenate(lanes.level_of)
    counts = []
    for order in lanes.orders:
        begin, end = (level_of[first[order] + option[:, order]] for option in found[:2])
        counts.append(changes_between(begin, end))
    return np.column_stack(counts)


def levels_of(frontier: Frontier, lanes: Lanes) -> Levels:
    """Arrange the options of all levels that are on the hull of any table."""
    problem = frontier.whole.problem
    pairs = zip(frontier.whole.hulls, lanes.level_of, strict=True)
    kept = np.unique(np.concatenate([own[hull.option] for hull, own in pairs if len(own)]))
    shape = len(problem.tables), len(kept)
    levels = Levels(np.full(shape, -1, np.int32), np.zeros(shape), np.full(shape, np.inf))
    for number, (table, own) in enumerate(zip(problem.tables, lanes.level_of, strict=True)):
        options = np.flatnonzero(np.isin(own, kept))
        at = np.searchsorted(kept, own[options])
        levels.option[number, at] = options
        levels.duration_s[number, at] = table.duration_s[options]
        levels.cost_j[number, at] = table.cost_j[options]
    return levels


class _Search:
    """Searches for one time after another; the taxes of the last one are where the next begins."""

    def __init__(self, frontier: Frontier, lanes: Lanes, within: BudgetWithin, least_part_s: float) -> None:
        problem, count = frontier.whole.problem, len(lanes)
        fixed_s = np.array([table.duration_s.min() for table in problem.tables])[problem.table_of]
        fixed_s[np.concatenate(lanes.orders)] = 0.0
        self._frontier, self._lanes, self._within = frontier, lanes, within
        self._least_part_s = least_part_s
        units = count + int(within(1.0).group_of.max()) + 1
        levels, order = levels_of(frontier, lanes), np.concatenate(lanes.orders).astype(np.int64)
        width, most = levels.cost_j.shape[1], 4 * len(order)
        lowering, raising = (
            Moves._make((step, *np.empty((5, most), np.int64), np.empty(most), np.empty(most, np.int64)))
            for step in (1, -1)
        )
        start_s, lasts_s, late_s = np.empty((3, len(problem)))
        cap, trial = np.zeros((2, len(problem)), np.int32)
        self._game = Game(
            graph=frontier.whole.graph,
            delay_s=problem.delay_s,
            table=problem.table_of,
            levels=levels,
            fixed_s=fixed_s,
            first=np.concatenate(([0], np.cumsum([len(own) for own in lanes.orders]))).astype(np.int64),
            order=order,
            tax=np.ones(units),
            home=np.zeros(count, np.int64),
            paid=np.empty(width),
            back=np.empty((len(order), width), np.int16),
            start_s=start_s,
            lasts_s=lasts_s,
            late_s=late_s,
            via=np.empty(len(problem), np.int64),
            cap=cap,
            trial=trial,
            trial_tax=np.empty(units),
            trial_home=np.empty(count, np.int64),
            lowering=lowering,
            raising=raising,
        )

    def plans(self, times_s: Floats, *, first: bool) -> list[Timelines]:
        """Return plans for the first of some times, with their changes moved to the others as well."""
        time_s = float(times_s[0])
        budget = self._within(time_s)
        rungs = budget.ladder() if first and len(self._game.table) <= LADDER else [budget]
        return [
            one
            for rung in rungs
            for level in self._search(time_s, rung, first=first)
            for one in self._move_changes(level, times_s, rung, first=first)
        ]

    def _search(self, time_s: float, budget: Budget, *, first: bool) -> Indices:
        """Return the levels of the best plans that keep the time.

        Shape: returns [plans, activities].
        """
        count = len(self._game.table)
        flow_w = self._frontier.activity_flow(self._frontier.bracket(time_s)[0])
        worth_w = float(flow_w[np.diff(self._game.graph.first_before) == 0].sum())
        most_turns, most_fitted, most_tries = (most // count for most in (FIRST_WORK if first else WORK))
        turns = max(min(MOST_TURNS, 10 * count, most_turns), TURNS)
        fitted, kept = max(min(MOST_FITTED, 2 * count, most_fitted), FITTED), FIRST_KEPT if first else KEPT
        tries = min(20 * count, most_tries)
        if count >= LARGE:
            turns, fitted, tries = (turns, 2 * FITTED, 0) if first else (2 * TURNS // 3, 1, 0)
        price_w, level = np.empty((turns, count)), np.zeros((turns, count), np.int32)
        price_w[0] = flow_w
        answers = Answers(price_w, level, *np.full((2, turns), np.inf))
        _search(self._game, budget, answers, worth_w, time_s * AS_LONG, fitted, kept, tries)
        best = np.argsort(answers.cost_j, kind="stable")[: MOVED if first and count < LARGE else 1]
        return level[best[np.isfinite(answers.cost_j[best])]]

    def _move_changes(
        self, level: Indices, times_s: Floats, budget: Budget, *, first: bool
    ) -> list[Timelines]:
        """Return the plan as it was found, and with its changes at better moments for all times."""
        problem, order = self._frontier.whole.problem, self._game.order
        option = np.zeros(len(problem), np.int32)
        option[order] = self._game.levels.option[problem.table_of[order], level[order]]
        found = [Timelines(option[None], option[None], np.ones((1, len(option))))]
        if np.isinf(self._least_part_s):
            return found
        price_w = self._frontier.activity_flow(self._frontier.bracket(float(times_s[0]))[0])
        for turn in range((ROUNDS if len(order) < LARGE else 2) if first else 1):
            last = Timelines._make(column[:1] for column in found[-1])
            choice, other = last.choice[0], last.other[0]
            if turn % 2 == 0:  # else what was split makes use of the time that parts too short have left
                spare = budget.changes_left(changes_of(problem, self._lanes, last)[0], shared=True)
                choice, other = self._freedom(last, price_w, spare)
            found.append(_best_moments(self._frontier, choice, other, times_s, self._least_part_s))
        return found

    def _freedom(self, plan: Timelines, price_w: Floats, spare: Ints) -> tuple[Indices, Indices]:
        """Return the two options of each activity between which a change may move.

        A change between two activities may fall into either. An activity may go on at the level beside its
        own where its lane has changes to spare. Those come first that the price is most indifferent about.
        """
        choice, other = plan.choice[0].copy(), plan.other[0].copy()
        table, levels = self._game.table, self._game.levels
        for lane, order in enumerate(self._lanes.orders):
            own, every = levels.option[table[order]], np.arange(len(order))
            begin, end = ((own == option[order][:, None]).argmax(axis=1) for option in (choice, other))
            worth_j = levels.cost_j[table[order]] + price_w[order][:, None] * levels.duration_s[table[order]]
            _free(own, worth_j, begin, end, int(spare[lane]))
            choice[order], other[order] = own[every, begin], own[every, end]
        return choice, other


def _free(option: Indices, worth_j: Floats, begin: Ints, end: Ints, spare: int) -> None:
    """Let one lane's activities begin and end at two levels, in place."""
    count, width = option.shape
    moves: list[tuple[float, int, int, int, int, bool, bool]] = []
    for at in range(count):
        here = int(begin[at])
        if here != int(end[at]):
            continue
        before, after = int(end[at - 1]), int(begin[(at + 1) % count])
        apart_j = np.abs(worth_j[at] - worth_j[at, here]).tolist()
        if before != here and option[at, before] >= 0:
            moves.append((apart_j[before], at, before, here, 0, True, False))
        if after != here and option[at, after] >= 0:
            moves.append((apart_j[after], at, here, after, 0, False, True))
        for step in (-1, 1):
            beside = here + step
            while 0 <= beside < width and option[at, beside] < 0:
                beside += step
            if 0 <= beside < width and at + 1 < count and beside != after:
                moves.append((apart_j[beside], at, here, beside, 2 if after == here else 1, True, True))
    is_held = [False] * (count + 1)
    is_mixed = (begin != end).tolist()
    for _, at, first, last, more, takes_before, takes_after in sorted(moves):
        is_taken = (takes_before and is_held[at]) or (takes_after and is_held[at + 1])
        if is_mixed[at] or is_taken or more > spare:
            continue
        begin[at], end[at], is_mixed[at] = first, last, True
        is_held[at] |= takes_before
        is_held[at + 1] |= takes_after
        spare -= more


def _best_moments(
    frontier: Frontier, choice: Indices, other: Indices, times_s: Floats, least_part_s: float
) -> Timelines:
    """Choose all shares at once, for many times: the exact optimum for these changes within each.

    Every activity becomes one with its two options. The problem is of the same kind, and its relaxed optimum
    is run exactly, but for parts shorter than ``least_part_s``.
    """
    problem = frontier.whole.problem
    rows, number = np.unique(np.column_stack((problem.table_of, choice, other)), axis=0, return_inverse=True)
    tables = []
    for table, *options in rows:
        own, kept = problem.tables[table], list(dict.fromkeys(options))
        tables.append(OptionTable(own.duration_s[kept], own.cost_j[kept]))
    two = Problem(
        tuple(tables), number.reshape(-1).astype(np.int32), problem.before, problem.after, problem.delay_s
    )
    until_s = max(float(np.max(times_s)), frontier.t_min_s) * AS_LONG
    small = solve_frontier(two, until_s=until_s, down_to_s=float(np.min(times_s)), around_s=times_s)
    within_s = np.unique(np.clip(times_s, small.t_min_s, small.t_star_s))
    if len(problem) <= LADDER:  # corners split less, but take as long as all else in larger problems
        lasts_s = small.whole.tick.real(np.array([corner_durations(small, time_s) for time_s in within_s]))
    else:
        lasts_s = np.array([small.durations_at(time_s) for time_s in within_s.tolist()])
    ones = np.ones(len(choice))
    first_s, rest_s = (blend(problem, option, option, ones)[0] for option in (choice, other))
    apart_s = first_s - rest_s
    share = np.divide(lasts_s - rest_s, apart_s, out=np.ones_like(lasts_s), where=apart_s != 0.0)
    share = share.clip(0.0, 1.0)
    fast = np.where(first_s < rest_s, share, 1.0 - share)
    shorter_s, longer_s = (
        np.broadcast_to(end(first_s, rest_s), fast.shape) for end in (np.minimum, np.maximum)
    )
    fast = long_enough(fast, shorter_s, longer_s, least_part_s)
    share = np.where(choice == other, 1.0, np.where(first_s < rest_s, fast, 1.0 - fast))
    start, stop = np.where(share > 0.0, choice, other), np.where(share < 1.0, other, choice)
    return Timelines(start, stop, np.where(start == stop, 1.0, share))


@compiled
def _search(
    game: Game,
    budget: Budget,
    answers: Answers,
    worth_w: float,
    time_s: float,
    fitted: int,
    kept: int,
    tries: int,
) -> None:
    """Let lanes answer prices and paths answer lanes, turn by turn; make the best answers fit, in place.

    The first prices are given. The cheapest that fit have their levels exchanged.
    """
    turns, count = answers.level.shape
    _fill(game.cap, game.levels.cost_j.shape[1] - 1)
    for turn in range(turns):
        price_w, level = answers.price_w[turn], answers.level[turn]
        _answer(game, budget, game.tax, game.home, price_w, 1.0, level)
        total_s, at = _longest(game, level)
        answers.score[turn] = _cost(game, level) + LATE * max(total_s - time_s, 0.0) * worth_w
        if turn + 1 == turns:
            break
        step, scale = 1.0 / (turn + BEGIN), min(max(total_s / time_s, 0.97), 1.03)
        if turn < 40:
            scale *= scale
        after = answers.price_w[turn + 1]
        for activity in range(count):
            after[activity] = scale * (1.0 - step) * price_w[activity]
        while at >= 0:
            after[at] += scale * step * worth_w
            at = game.via[at]
        worth_w *= scale
    which = _next(answers.score, -np.inf)
    while fitted > 0 and which >= 0:
        level = answers.level[which]
        fits = _fit(game, budget, answers.price_w[which], time_s, level)
        _fill(game.cap, game.levels.cost_j.shape[1] - 1)
        if fits:
            _lower(game, time_s, level)
            answers.cost_j[which] = _cost(game, level)
        fitted, which = fitted - 1, _next(answers.score, answers.score[which])
    which = _next(answers.cost_j, -np.inf)
    while kept > 0 and tries > 0 and which >= 0:
        last = answers.cost_j[which]
        answers.cost_j[which] = _exchange(game, time_s, answers.level[which], tries)
        kept, which = kept - 1, _next(answers.cost_j, last)


@inner
def _next(values: Floats, last: float) -> int:
    """Return the place of the least value above another one, the first of several; -1 where there is none."""
    place, least = -1, np.inf
    for at in range(len(values)):
        if last < values[at] < least:
            place, least = at, values[at]
    return place


@inner
def _fill(values: Indices, value: int) -> None:  # loops: an assignment of slices takes a second to compile
    for at in range(len(values)):
        values[at] = value


@inner
def _copy(values: Floats | Ints | Indices, to: Floats | Ints | Indices) -> None:
    for at in range(len(values)):
        to[at] = values[at]


@inner
def _fit(game: Game, budget: Budget, price_w: Floats, time_s: float, level: Indices) -> bool:
    """Raise prices by the least factor at which the answer, nowhere slower than before, fits the time."""
    if _longest(game, level)[0] <= time_s:
        return True
    _copy(level, game.cap)
    _copy(game.tax, game.trial_tax)
    _copy(game.home, game.trial_home)
    low, high, fits = 1.0, 1.05, False
    for _ in range(14):
        factor = (low * high) ** 0.5 if fits else high
        _answer(game, budget, game.trial_tax, game.trial_home, price_w, factor, game.trial)
        if _longest(game, game.trial)[0] <= time_s:
            high, fits = factor, True
            _copy(game.trial, level)
            if high < 1.001 * low:
                break
        else:
            low = factor
            if not fits:
                high = 1.0 + 2.0 * (high - 1.0)
    return fits


@inner
def _answer(
    game: Game, budget: Budget, tax: Floats, home: Ints, price_w: Floats, factor: float, level: Indices
) -> None:
    """Choose the cheapest levels of every lane at these prices within the budget; taxes are left in place.

    First each lane by itself, then lanes that may change at most so often together share a tax. It is one at
    which they change as often as they may (their levels are then the best of all that change so often), else
    the least that suffices.
    """
    lanes = len(home)
    for unit in range(len(tax) if budget.group < UNLIMITED else lanes):
        most = budget.lane if unit < lanes else budget.group
        trial = max(tax[unit], NO_TAX) if most < UNLIMITED else 0.0
        low, high, step, tries, is_last = 0.0, np.inf, 1.2, 0, False
        while True:
            changes = 0
            for lane in range(lanes):
                if unit == lane or unit - lanes == budget.group_of[lane]:
                    own = trial if unit == lane else max(trial, tax[lane])
                    changes += _path(game, price_w, factor, lane, home[lane], own, level)
            if is_last:
                break
            if changes == most or (changes < most and trial <= NO_TAX):
                tax[unit] = trial
                break
            if changes < most:
                high = trial
            else:
                low = trial
            tries += 1
            is_last = tries == 40 or (low > 0.0 and high < 1.1 * low)
            if low == 0.0 or high == np.inf:
                trial = max(trial / step, NO_TAX) if low == 0.0 else trial * step
                step = min(step * step, 100.0)
            elif high >= 1.1 * low:
                trial = (low * high) ** 0.5
            if is_last:
                tax[unit] = min(trial, high)
                if high == np.inf:
                    break
                trial = high
    for lane in range(lanes):
        home[lane] = level[game.order[game.first[lane + 1] - 1]]


@inner
def _path(
    game: Game, price_w: Floats, factor: float, lane: int, home: int, tax: float, level: Indices
) -> int:
    """Write one lane's cheapest levels at a tax on each change; return how often it changes.

    The lane runs in a circle: it begins and ends at its home, or pays to be elsewhere.
    """
    paid, back, levels = game.paid, game.back, game.levels
    first, end, width = game.first[lane], game.first[lane + 1], len(game.paid)
    for own in range(width):
        paid[own] = 0.0 if own == home else tax
    for at in range(first, end):
        activity = game.order[at]
        table, worth_w = game.table[activity], factor * price_w[activity]
        least, best = np.inf, 0
        for own in range(width):
            if paid[own] < least:
                least, best = paid[own], own
        for own in range(width):
            back[at, own] = own
            if paid[own] > least + tax:
                paid[own], back[at, own] = least + tax, best
            if own <= game.cap[activity]:
                paid[own] += levels.cost_j[table, own] + worth_w * levels.duration_s[table, own]
            else:
                paid[own] = np.inf
    least, best = np.inf, 0
    for own in range(width):
        total_j = paid[own] + (0.0 if own == home else tax)
        if total_j < least:
            least, best = total_j, own
    for at in range(end - 1, first - 1, -1):
        level[game.order[at]] = best
        best = back[at, best]
    return _changes(game, lane, level)


@inner
def _lower(game: Game, time_s: float, level: Indices) -> None:
    """Lower runs and their ends, dearest first, while the time holds and no change is added; in place."""
    moves = game.lowering
    _longest(game, level)
    _latest(game, time_s)
    for _ in range(12):
        left, improved = _list_moves(game, moves, level), False
        while left > 0:
            which = moves.heap[0]
            pop(moves.rank, moves.heap, left)
            left -= 1
            if _has_room(game, which) and _move(game, moves, which, level):
                if _longest(game, level)[0] <= time_s:
                    improved = True
                    _latest(game, time_s)
                else:
                    _set(game, moves, which, moves.level[which], level)
                    _longest(game, level)
        if not improved:
            break


@inner
def _exchange(game: Game, time_s: float, level: Indices, tries: int) -> float:
    """Raise critical runs and ends of runs, each by itself; lower what that makes room for; in place.

    Then raise one to three at random likewise. Return the cost.
    """
    moves, kicks, best_j = game.raising, tries // KICKS, _cost(game, level)
    for _ in range(4):
        left, improved, is_timed = _list_moves(game, moves, level), False, False
        while left > 0 and tries > 0:
            which = moves.heap[0]
            pop(moves.rank, moves.heap, left)
            left -= 1
            if not is_timed:
                _longest(game, level)
                _latest(game, time_s)
                is_timed = True
            if _is_critical(game, which):
                tries -= 1
                _copy(level, game.trial)
                if _raise(game, which):
                    spent_j = _settle(game, time_s, level, best_j)
                    improved, best_j, is_timed = improved or spent_j < best_j, spent_j, False
        if not improved:
            break
    random, count = 1, _list_moves(game, moves, level)
    for _ in range(kicks if count > 0 else 0):
        _copy(level, game.trial)
        random = (random * 1103515245 + 12345) & 0x7FFFFFFF
        for _ in range(1 + (random >> 16) % 3):
            random = (random * 1103515245 + 12345) & 0x7FFFFFFF
            _raise(game, (random >> 8) % count)
        spent_j = _settle(game, time_s, level, best_j)
        if spent_j < best_j:
            best_j, count = spent_j, _list_moves(game, moves, level)
    return best_j


@inner
def _raise(game: Game, which: int) -> bool:
    """Raise a stretch of the trial, and keep it so, if its lane changes no more often then."""
    moves = game.raising
    is_raised = _move(game, moves, which, game.trial)
    for place in range(moves.size[which] if is_raised else 0):
        game.cap[_activity_at(game, moves, which, place)] = moves.to[which]
    return is_raised


@inner
def _settle(game: Game, time_s: float, level: Indices, best_j: float) -> float:
    """Lower the trial where it may be; take it over if it is cheaper, and return the cost of what stays."""
    _lower(game, time_s, game.trial)
    _fill(game.cap, game.levels.cost_j.shape[1] - 1)
    spent_j = _cost(game, game.trial)
    if spent_j >= best_j - 1e-9 * abs(best_j):
        return best_j
    _copy(game.trial, level)
    return spent_j


@inner
def _list_moves(game: Game, moves: Moves, level: Indices) -> int:
    """List what may be lowered or raised: runs to the level beside, their ends to their neighbour's."""
    found, step, width = 0, moves.step, game.levels.cost_j.shape[1]
    for lane in range(len(game.first) - 1):
        first, length = game.first[lane], game.first[lane + 1] - game.first[lane]
        origin = 0
        while origin < length:
            if level[game.order[first + origin]] != level[game.order[first + (origin - 1) % length]]:
                break
            origin += 1
        origin %= length
        at = 0
        while at < length:
            here, end = level[game.order[first + (origin + at) % length]], at + 1
            while end < length and level[game.order[first + (origin + end) % length]] == here:
                end += 1
            before = level[game.order[first + (origin + at - 1) % length]]
            after = level[game.order[first + (origin + end) % length]]
            for kind in range(3):
                begin = origin + (end - 1 if kind == 2 else at)
                size = end - at if kind == 0 else 1
                to = here + step if kind == 0 else before if kind == 1 else after
                if (kind == 2 and end - at == 1 and before == after) or (to - here) * step <= 0:
                    continue
                while 0 <= to < width:
                    gain_j, longer_s = 0.0, 0.0
                    for place in range(size):
                        table = game.table[game.order[first + (begin + place) % length]]
                        gain_j += game.levels.cost_j[table, here] - game.levels.cost_j[table, to]
                        longer_s += game.levels.duration_s[table, to] - game.levels.duration_s[table, here]
                    if kind > 0 or gain_j > -np.inf:
                        break
                    to += step
                if 0 <= to < width and gain_j > -np.inf and (step < 0 or gain_j > 0.0):
                    moves.lane[found], moves.begin[found], moves.size[found] = lane, begin, size
                    moves.level[found], moves.to[found] = here, to
                    push(moves.rank, moves.heap, found, -step * gain_j / max(abs(longer_s), 1e-12), found)
                    found += 1
            at = end
    return found


@inner
def _activity_at(game: Game, moves: Moves, which: int, place: int) -> int:
    """Return an activity of a stretch, which may go on at the lane's beginning."""
    first = game.first[moves.lane[which]]
    return int(game.order[first + (moves.begin[which] + place) % (game.first[moves.lane[which] + 1] - first)])


@inner
def _has_room(game: Game, which: int) -> bool:
    """Return whether each of a stretch by itself can be lowered in its time."""
    moves, to = game.lowering, game.lowering.to[which]
    for place in range(moves.size[which]):
        activity = _activity_at(game, moves, which, place)
        lasts_s = game.levels.duration_s[game.table[activity], to]
        longer_s = lasts_s - game.lasts_s[activity]
        if game.cap[activity] < to or game.start_s[activity] + longer_s > game.late_s[activity]:
            return False
    return True


@inner
def _is_critical(game: Game, which: int) -> bool:
    """Return whether any of a stretch has less time to wait than raising it gains."""
    moves = game.raising
    for place in range(moves.size[which]):
        activity = _activity_at(game, moves, which, place)
        gained_s = game.lasts_s[activity] - game.levels.duration_s[game.table[activity], moves.to[which]]
        if game.late_s[activity] - game.start_s[activity] < gained_s:
            return True
    return False


@inner
def _move(game: Game, moves: Moves, which: int, level: Indices) -> bool:
    """Move a stretch that is still at its level; move it back and return False if that adds a change."""
    for place in range(moves.size[which]):
        if level[_activity_at(game, moves, which, place)] != moves.level[which]:
            return False
    before = _changes(game, moves.lane[which], level)
    _set(game, moves, which, moves.to[which], level)
    if _changes(game, moves.lane[which], level) <= before:
        return True
    _set(game, moves, which, moves.level[which], level)
    return False


@inner
def _set(game: Game, moves: Moves, which: int, to: int, level: Indices) -> None:
    for place in range(moves.size[which]):
        level[_activity_at(game, moves, which, place)] = to


@inner
def _cost(game: Game, level: Indices) -> float:
    spent_j = 0.0
    for activity in game.order:
        spent_j += game.levels.cost_j[game.table[activity], level[activity]]
    return spent_j


@inner
def _changes(game: Game, lane: int, level: Indices) -> int:
    """Count the changes of one lane, the way back included."""
    first, end, changes = game.first[lane], game.first[lane + 1], 0
    last = level[game.order[end - 1]]
    for at in range(first, end):
        here = level[game.order[at]]
        if here != last:
            changes += 1
        last = here
    return changes


@inner
def _longest(game: Game, level: Indices) -> tuple[float, int]:
    """Fill durations, earliest starts and what each activity waits for.

    Return how long the longest path is, and where it ends.
    """
    graph, durations_s = game.graph, game.levels.duration_s
    lasts_s, start_s, via = game.lasts_s, game.start_s, game.via
    total_s, last = 0.0, -1
    for activity in graph.order:
        lasts_s[activity] = game.fixed_s[activity] + durations_s[game.table[activity], level[activity]]
        start_s[activity], via[activity] = 0.0, -1
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            before = graph.before[row]
            ready_s = start_s[before] + lasts_s[before] + game.delay_s[graph.before_arc[row]]
            if ready_s > start_s[activity]:
                start_s[activity], via[activity] = ready_s, before
        if start_s[activity] + lasts_s[activity] > total_s:
            total_s, last = start_s[activity] + lasts_s[activity], activity
    return total_s, last


@inner
def _latest(game: Game, time_s: float) -> None:
    """Fill the latest starts with which all is over by ``time_s``."""
    graph, late_s = game.graph, game.late_s
    for place in range(len(late_s) - 1, -1, -1):
        activity = graph.order[place]
        due_s = time_s
        for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
            due_s = min(due_s, late_s[graph.after[row]] - game.delay_s[graph.after_arc[row]])
        late_s[activity] = due_s - game.lasts_s[activity]
