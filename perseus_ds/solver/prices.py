"""Prices of time and tolls of changes within a budget of changes, and what lanes answer to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from perseus_ds.errors import SolverError
from perseus_ds.solver.beam import Choices, LaneOutlook, Levels
from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.network import Graph, Whole
from perseus_ds.solver.problem import Floats, Indices, Ints, OptionTable


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Activities that share a machine, and the level at which each of their options runs it.

    ``orders``: the activities of each lane in running order, over and over again: the last is followed by
    the first. ``level_of``: for every table the level of each option, 0 the highest; empty where a table has
    none. No level is held for less than ``dwell_s``.

    Raises:
        SolverError: a table with another number of levels than options, or a time that is no time.
    """

    orders: tuple[Indices, ...]
    level_of: tuple[Indices, ...]
    dwell_s: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.dwell_s) and self.dwell_s >= 0.0):
            raise SolverError(
                f"lanes: dwell_s is {self.dwell_s!r}", hint="expected a finite number, 0 or more"
            )

    def __len__(self) -> int:
        return len(self.orders)


def leveled(whole: Whole, lanes: Lanes) -> tuple[Choices, Levels]:
    """Pack the options of all levels that are on the hull of any table, fastest first."""
    kept = _kept_levels(whole, lanes)
    number = np.full(max(kept, default=0) + 1, -1, dtype=np.int32)
    number[kept] = np.arange(len(kept))
    options, levels = zip(
        *(_options(whole, lanes, kept, table) for table in range(len(lanes.level_of))), strict=True
    )
    end = np.cumsum([len(option) for option in options])
    begin = np.concatenate(([0], end[:-1]))
    table_of = whole.problem.table_of
    tables = whole.problem.tables
    choices = Choices(
        first=begin[table_of].astype(np.int32),
        last=(end - 1)[table_of].astype(np.int32),
        length=whole.tick.whole(
            np.concatenate([t.duration_s[o] for t, o in zip(tables, options, strict=True)])
        ),
        cost=np.concatenate([t.cost_j[o] for t, o in zip(tables, options, strict=True)]),
        option=np.concatenate(options).astype(np.int32),
    )
    level = np.concatenate(
        [
            number[own] if len(own) else np.zeros(len(o), np.int32)
            for own, o in zip(levels, options, strict=True)
        ]
    )
    place = np.full((len(tables), max(len(kept), 1)), -1, dtype=np.int32)
    for table, own in enumerate(levels):
        place[table, number[own]] = begin[table] + np.arange(len(own))
    lane, at = np.full(len(table_of), -1, np.int32), np.zeros(len(table_of), np.int32)
    for which, order in enumerate(lanes.orders):
        lane[order], at[order] = which, np.arange(len(order))
    dwell = int(whole.tick.whole(np.array(lanes.dwell_s)))
    return choices, Levels(lane, at, table_of, level.astype(np.int32), place, dwell)


def _kept_levels(whole: Whole, lanes: Lanes) -> list[int]:
    found: set[int] = set()
    for hull, levels in zip(whole.hulls, lanes.level_of, strict=True):
        found.update(levels[hull.option].tolist() if len(levels) else ())
    return sorted(found)


def _options(whole: Whole, lanes: Lanes, kept: list[int], table: int) -> tuple[Ints, Indices]:
    """A table's options at the kept levels, fastest first, and their levels."""
    levels = lanes.level_of[table]
    if not len(levels):
        return np.argsort(whole.problem.tables[table].duration_s, kind="stable")[:1], levels
    mine = np.flatnonzero(np.isin(levels, kept))
    mine = mine[np.argsort(whole.problem.tables[table].duration_s[mine], kind="stable")]
    return mine, levels[mine]


# How one lane answers prices and a toll: its cheapest levels, by a dynamic program over its activities.


class LaneTable(NamedTuple):
    """A lane's activities in running order, what they may run at, and what is written of their answer.

    ``ahead`` is the least that the lane costs from each activity on by the level before it, ``answer`` the
    level taken there.

    Shape: ``order`` [activities of the lane]; ``ahead`` [activities + 1, levels] and ``answer``
    [activities, levels] of the longest lane at least.
    """

    order: Indices
    choices: Choices
    levels: Levels
    ahead: Floats
    answer: Indices


@inner
def look_back(lane: LaneTable, price: Floats, toll: float, home: int) -> int:
    """Fill what is ahead and the answer; return the level it would begin at were none before it."""
    order, ahead, answer = lane.order, lane.ahead, lane.answer
    table, place, length, cost = lane.levels.table, lane.levels.place, lane.choices.length, lane.choices.cost
    width, best = place.shape[1], 0
    for level in range(width):
        ahead[len(order), level] = 0.0 if level == home else toll
    for at in range(len(order) - 1, -1, -1):
        activity = order[at]
        own, worth = table[activity], price[activity]
        least, best = np.inf, 0
        for level in range(width):
            there = place[own, level]
            answer[at, level] = level
            if there >= 0:
                ahead[at, level] = cost[there] + worth * length[there] + ahead[at + 1, level]
                if ahead[at, level] < least:
                    least, best = ahead[at, level], level
            else:
                ahead[at, level] = np.inf
        for level in range(width):
            if least + toll < ahead[at, level]:
                ahead[at, level], answer[at, level] = least + toll, best
    return best


@inner
def follow(lane: LaneTable, home: int, duration: Floats) -> float:
    """Write what each activity lasts by the answer; return how often the lane changes."""
    order, answer, length = lane.order, lane.answer, lane.choices.length
    table, place = lane.levels.table, lane.levels.place
    here, changes = home, 0.0
    for at in range(len(order)):
        activity = order[at]
        there = answer[at, here]
        if there != here:
            changes += 1.0
            here = there
        duration[activity] = length[place[table[activity], here]]
    if here != home:
        changes += 1.0
    return changes


# One unit of flow over all paths of a graph, each by the exponential of its length.


class Spread(NamedTuple):
    """Flow through activities and over precedences, and the logarithm of all paths' weight up to each.

    Shape: ``upto``, ``through`` [activities]; ``over`` [precedences].
    """

    upto: Floats
    through: Floats
    over: Floats


@inner
def spread_out(graph: Graph, delay: Ints, duration: Floats, sharp: float, found: Spread) -> None:
    """Fill ``found``: forward, then backward. ``sharp`` is how much more a tick longer weighs."""
    total = _forward(graph, delay, duration, sharp, found.upto)
    upto, through, over = found.upto, found.through, found.over
    for at in range(len(duration) - 1, -1, -1):  # what flows on came by the arcs, in their shares
        activity = graph.order[at]
        if graph.first_after[activity] == graph.first_after[activity + 1]:
            through[activity] = np.exp(upto[activity] - total)
        else:
            through[activity] = 0.0
            for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
                through[activity] += over[graph.after_arc[row]]
        reached = upto[activity] - sharp * duration[activity]
        for row in range(graph.first_before[activity], graph.first_before[activity + 1]):
            arc = graph.before_arc[row]
            over[arc] = through[activity] * np.exp(upto[graph.before[row]] + sharp * delay[arc] - reached)


@inner
def _forward(graph: Graph, delay: Ints, duration: Floats, sharp: float, upto: Floats) -> float:
    """Fill ``upto``; return the logarithm of the weight of all paths."""
    count, total, top = len(duration), 0.0, -np.inf
    for at in range(count):
        activity = graph.order[at]
        first, last = graph.first_before[activity], graph.first_before[activity + 1]
        most = 0.0 if first == last else -np.inf
        for row in range(first, last):
            most = max(most, upto[graph.before[row]] + sharp * delay[graph.before_arc[row]])
        summed = 1.0 if first == last else 0.0
        for row in range(first, last):
            summed += np.exp(upto[graph.before[row]] + sharp * delay[graph.before_arc[row]] - most)
        upto[activity] = most + np.log(summed) + sharp * duration[activity]
        if graph.first_after[activity] == graph.first_after[activity + 1]:
            top = max(top, upto[activity])
    for activity in range(count):
        if graph.first_after[activity] == graph.first_after[activity + 1]:
            total += np.exp(upto[activity] - top)
    return float(top + np.log(total))


# How often lanes may change: by the second, and as whole changes in an iteration, rung below rung.

UNLIMITED = np.int64(2**62)
_DENSE, _STEP = 8, 1.15


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """Limits of changes of level: of each lane, and of a group together; None is without limit.

    Units: changes per second.
    Shape: ``group_of`` [lanes].
    """

    lane_per_s: float | None = None
    group_per_s: float | None = None
    group_of: Indices | None = None

    def within(self, time_s: float, lanes: int) -> Rung:
        """Whole changes in an iteration of that length."""
        group_of = np.zeros(lanes, np.int32) if self.group_of is None else self.group_of
        lane, group = (
            None if per_s is None else int(per_s * time_s * (1.0 + 1e-12))
            for per_s in (self.lane_per_s, self.group_per_s)
        )
        return Rung(lane, group, group_of)


@dataclass(frozen=True, slots=True, eq=False)
class Rung:
    """So many changes in an iteration at most: of a lane, and of all lanes of a group; None is without limit.

    Shape: ``group_of`` [lanes].
    """

    lane: int | None
    group: int | None
    group_of: Indices

    @property
    def none(self) -> bool:
        """Return whether not even one lane may change."""
        return 0 in {self.lane, self.group}

    def down(self) -> Iterator[Rung]:
        """Itself, rounded down, and one stricter rung after the other: the same ones whoever asks.

        Where lanes and groups are limited only lanes get stricter.
        """
        for lane in _ladder(self.lane):
            for group in _ladder(self.group) if self.lane is None else _ladder(self.group)[:1]:
                yield replace(self, lane=lane, group=group)

    def from_itself(self) -> Iterator[Rung]:
        """Itself, and what is below it, each once."""
        yield self
        yield from (rung for rung in self.down() if (rung.lane, rung.group) != (self.lane, self.group))

    def limits(self) -> tuple[Floats, Floats]:
        """Changes of each lane, and of each group.

        Shape: [lanes], [groups].
        """
        lane = np.inf if self.lane is None else float(self.lane)
        group = np.inf if self.group is None else float(self.group)
        return np.full(len(self.group_of), lane), np.full(int(self.group_of.max()) + 1, group)

    def spare(self, changes: Ints) -> Ints:
        """Return how many changes each lane may still make; those of a group are shared out evenly.

        Shape: [lanes].
        """
        left = np.full(len(changes), UNLIMITED)
        if self.lane is not None:
            left = self.lane - changes
        if self.group is not None:
            together = np.bincount(self.group_of, weights=changes)
            each = (self.group - together) // np.bincount(self.group_of)
            left = np.minimum(left, each[self.group_of].astype(np.int64))
        return left

    def allows(self, changes: Ints) -> bool:
        """Return whether so many changes of each lane are allowed.

        Shape: [lanes].
        """
        return bool((self.spare(changes) >= 0).all())

    def part(self, share: float) -> Rung:
        """A share of the changes, at least one."""
        lane, group = (
            None if most is None else max(1, round(share * most)) for most in (self.lane, self.group)
        )
        return replace(self, lane=lane, group=group)


def _ladder(limit: int | None) -> list[int | None]:
    """Numbers of changes that are searched for, the limit's own rung first; not the one without changes."""
    if limit is None:
        return [None]
    rungs, rung = [], 1
    while rung <= limit:
        rungs.append(rung)
        rung = rung + 1 if rung < _DENSE else round(rung * _STEP)
    return list(reversed(rungs)) or [0]


# Prices of time and tolls of changes for one rung of a budget: a game of paths against lanes.
#
# The relaxed optimum does not know that changes are few: its prices ask for more of them than there may be.
# Here lanes answer prices with the cheapest levels that few changes allow. Paths answer durations with flow
# where it takes longest, and tolls rise where a lane changes too often. The more answers are averaged, the
# nearer the prices come to those that bound the cost of any such plan best.
#
# Source: Brown 1951, fictitious run; Freund and Schapire 1999, multiplicative weights.

# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords


ROUNDS = 100
"""Answers that are averaged."""
SHARPNESS = 2.0
"""How sharply flow prefers longer paths, by activities in a problem: it spreads over nearly equal ones."""
START = 0.05
"""The first toll, as a share of what the options of one activity can differ by."""
_OLD = 20  # answers that the relaxed prices count for
_PACE, _FASTEST = 1.5, 0.5  # of the tolls


class Packed(NamedTuple):
    """The activities of all lanes, one lane behind the other.

    Shape: ``first`` [lanes + 1]; ``order`` [activities of lanes].
    """

    first: Indices
    order: Indices


class Prices(NamedTuple):
    """Prices of time, precedences and changes, and the bound that they prove.

    ``home`` is the level that each lane begins at; ``mean`` the durations, averaged; no plan of the rung
    costs less than ``bound``.

    Units: ticks; cost per tick; cost.
    Shape: ``price``, ``mean`` [activities]; ``across`` [precedences]; ``toll``, ``home`` [lanes].
    """

    price: Floats
    across: Floats
    toll: Floats
    home: Indices
    mean: Ints
    bound: float


class Limits(NamedTuple):
    """Numbers of changes that each lane and each group may make; infinite without a limit.

    Shape: ``lane``, ``group_of`` [lanes]; ``group`` [groups].
    """

    lane: Floats
    group: Floats
    group_of: Indices


class Game(NamedTuple):
    """Constants of the game from one answer to the next; plans last ``wanted`` ticks."""

    graph: Graph
    delay: Ints
    choices: Choices
    levels: Levels
    lanes: Packed
    limits: Limits
    wanted: int


class RunningPrices(NamedTuple):
    """State of the game so far: prices, tolls, homes and mean durations, changed in place.

    Shape: ``price``, ``mean`` [activities]; ``across`` [precedences]; ``lane_toll``, ``home`` [lanes];
    ``group_toll`` [groups].
    """

    price: Floats
    across: Floats
    lane_toll: Floats
    group_toll: Floats
    home: Indices
    mean: Floats


def packed(orders: tuple[Indices, ...]) -> Packed:
    """Pack the orders of lanes."""
    first = np.concatenate(([0], np.cumsum([len(order) for order in orders]))).astype(np.int32)
    return Packed(first, np.concatenate(orders).astype(np.int32))


def priced(
    whole: Whole,
    choices: Choices,
    levels: Levels,
    lanes: Packed,
    rung: Rung,
    flows: tuple[Floats, Floats],
    wanted: int,
) -> Prices:
    """Run from the relaxed flows (through activities, across precedences) for plans of so many ticks.

    Cost: linear in activities times levels, and in precedences, per round.
    """
    limits = Limits(*rung.limits(), rung.group_of)
    start_toll = START * max(float(np.ptp(table.cost_j)) for table in whole.problem.tables)
    now = RunningPrices(
        price=flows[0].copy(),
        across=flows[1].copy(),
        lane_toll=np.full(len(limits.lane), start_toll) * np.isfinite(limits.lane),
        group_toll=np.full(len(limits.group), start_toll) * np.isfinite(limits.group),
        home=np.zeros(len(limits.lane), np.int32),
        mean=np.zeros(len(flows[0])),
    )
    game = Game(whole.graph, whole.delay, choices, levels, lanes, limits, wanted)
    bound = _play(game, now, ROUNDS)
    toll = now.lane_toll + now.group_toll[rung.group_of]
    return Prices(now.price, now.across, toll, now.home, np.rint(now.mean).astype(np.int64), float(bound))


@compiled
def _play(game: Game, now: RunningPrices, rounds: int) -> float:
    """Average answers; return the bound that the prices prove at the end."""
    graph, limits, price, mean = game.graph, game.limits, now.price, now.mean
    count, value = len(price), 0.0
    duration = np.empty(count)
    for activity in range(count):
        if graph.first_before[activity] == graph.first_before[activity + 1]:
            value += price[activity]
        duration[activity] = game.choices.length[game.choices.first[activity]]
    width = game.levels.place.shape[1]
    ahead, answer = np.empty((count + 1, width)), np.empty((count, width), np.int32)
    flow = Spread(np.empty(count), np.empty(count), np.empty(len(game.delay)))
    changes, together = np.empty(len(limits.lane)), np.empty(len(limits.group))
    for turn in range(rounds):
        _answer(game, now, ahead, answer, duration, changes)
        together[:] = 0.0
        for lane in range(len(changes)):
            together[limits.group_of[lane]] += changes[lane]
        share = 2.0 / (turn + 2.0)
        for activity in range(count):
            mean[activity] += (
                share * (duration[activity] - mean[activity]) if turn else duration[activity] - mean[activity]
            )
        pace = _PACE / np.sqrt(turn + 1.0)
        _turn(now.lane_toll, changes, limits.lane, pace)
        _turn(now.group_toll, together, limits.group, pace)
        sharp = SHARPNESS * count * np.sqrt(turn + 1.0) / game.wanted
        spread_out(graph, game.delay, mean, sharp, flow)
        share = 1.5 / (turn + _OLD)
        _near(price, flow.through, value, share)
        _near(now.across, flow.over, value, share)
    return _bound(game, now, ahead, answer, value)


@inner
def _answer(
    game: Game, now: RunningPrices, ahead: Floats, answer: Indices, duration: Floats, changes: Floats
) -> None:
    """Let every lane answer prices and tolls: durations, changes, and the level that it begins at."""
    lanes, home = game.lanes, now.home
    for which in range(len(changes)):
        order = lanes.order[lanes.first[which] : lanes.first[which + 1]]
        lane = LaneTable(order, game.choices, game.levels, ahead, answer)
        toll = now.lane_toll[which] + now.group_toll[game.limits.group_of[which]]
        begins = look_back(lane, now.price, toll, home[which])
        changes[which] = follow(lane, home[which], duration)
        home[which] = begins


@inner
def _near(values: Floats, flow: Floats, value: float, share: float) -> None:
    """Move prices by a share of the way towards where flow goes now."""
    for place in range(len(values)):
        values[place] += share * (value * flow[place] - values[place])


@inner
def _turn(toll: Floats, changes: Floats, most: Floats, pace: float) -> None:
    """Raise tolls where there are more changes than wanted, lower them where there are fewer."""
    for which in range(len(toll)):
        if most[which] < np.inf:
            off = pace * (changes[which] - most[which]) / max(most[which], 1.0)
            toll[which] *= np.exp(min(max(off, -_FASTEST), _FASTEST))


@inner
def _bound(game: Game, now: RunningPrices, ahead: Floats, answer: Indices, value: float) -> float:
    """Return what these prices prove; every lane's home is the best of all."""
    choices, levels, lanes, limits = game.choices, game.levels, game.lanes, game.limits
    found = -value * game.wanted
    for arc in range(len(game.delay)):
        found += now.across[arc] * game.delay[arc]
    for activity in range(len(now.price)):
        if levels.lane[activity] < 0:
            only = choices.first[activity]
            found += choices.cost[only] + now.price[activity] * choices.length[only]
    for which in range(len(limits.lane)):
        order = lanes.order[lanes.first[which] : lanes.first[which + 1]]
        lane = LaneTable(order, choices, levels, ahead, answer)
        toll, least = now.lane_toll[which] + now.group_toll[limits.group_of[which]], np.inf
        for level in range(levels.place.shape[1]):
            look_back(lane, now.price, toll, level)
            if ahead[0, level] < least:
                least, now.home[which] = ahead[0, level], level
        found += least - _paid(now.lane_toll[which], limits.lane[which])
    for group in range(len(limits.group)):
        found -= _paid(now.group_toll[group], limits.group[group])
    return found


@inner
def _paid(toll: float, most: float) -> float:
    """Return what all changes that are allowed cost."""
    return toll * most if most < np.inf else 0.0


# What is still to be paid along each lane: the least that levels and changes cost from here to the end.

# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords


COUNTED = 6_000_000
"""Numbers that an outlook may hold to count the changes that are left; else tolls keep them few."""


def outlook_of(
    tables: tuple[OptionTable, ...],
    choices: Choices,
    lanes: Lanes,
    levels: Levels,
    price: Floats,
    toll: Floats,
    home: Indices,
    most: int | None,
) -> LaneOutlook:
    """For every lane, place in its order and state before it: the least that the rest costs at these prices.

    With a price for every tick of duration and a toll for every change the lanes are apart. Each is one
    dynamic program over (activity, changes left, level): what a beam has to know of the future. At most so
    many changes (``most``) are counted, instead of tolls of their own.

    Shape: ``price`` [activities]; ``toll``, ``home`` (levels) [lanes]. The last row is the way back home.
    Cost: activities times states.
    """
    width, longest = levels.place.shape[1], max(map(len, lanes.orders))
    left = 0 if most is None else most
    extra = max(float(np.ptp(table.cost_j)) for table in tables)
    ahead = np.full((len(lanes), longest + 1, (left + 1) * width), np.inf)
    for lane, order in enumerate(lanes.orders):
        at_home = np.arange(width) == home[lane]
        ahead[lane, len(order)] = toll[lane]
        if most is not None:
            ahead[lane, len(order), :width] += extra
        ahead[lane, len(order)].reshape(-1, width)[:, at_home] = 0.0
        _look_back(order, choices, levels, price, toll[lane], extra, most is not None, ahead[lane])
    return LaneOutlook(ahead, toll, (left * width + home).astype(np.int32), extra)


@compiled
def _look_back(
    order: Indices,
    choices: Choices,
    levels: Levels,
    price: Floats,
    toll: float,
    extra: float,
    counted: bool,  # noqa: FBT001
    found: Floats,
) -> None:
    length, cost, width = choices.length, choices.cost, levels.place.shape[1]
    for at in range(len(order) - 1, -1, -1):
        activity = order[at]
        row, worth = levels.place[levels.table[activity]], price[activity]
        fewer = 0.0  # the least with one change fewer left
        for left in range(found.shape[1] // width):
            base, least = left * width, np.inf
            for level in range(width):
                if row[level] >= 0:
                    found[at, base + level] = (
                        cost[row[level]] + worth * length[row[level]] + found[at + 1, base + level]
                    )
                    least = min(least, found[at, base + level])
            changed = toll + ((fewer if left else least + extra) if counted else least)
            for level in range(width):
                found[at, base + level] = min(found[at, base + level], changed)
            fewer = least
