"""Prices of time and tolls of changes for one rung of a budget: a game of paths against lanes.

The relaxed optimum does not know that changes are few: its prices ask for more of them than there may be.
Here lanes answer prices with the cheapest levels that few changes allow. Paths answer durations with flow
where it takes longest, and tolls rise where a lane changes too often. The more answers are averaged, the
nearer the prices come to those that bound the cost of any such plan best.

Source: Brown 1951, fictitious run; Freund and Schapire 1999, multiplicative weights.
"""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiled import compiled, inner
from perseus_ds.solver.network import Graph, Whole
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.allowance import Rung
from perseus_ds.solver.timeline.answers import LaneTable, follow, look_back
from perseus_ds.solver.timeline.spread import Spread, spread_out

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
    """What time, precedences and changes are worth, and what that proves.

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
    """How often each lane and each group may change; infinite where there is no limit.

    Shape: ``lane``, ``group_of`` [lanes]; ``group`` [groups].
    """

    lane: Floats
    group: Floats
    group_of: Indices


class Game(NamedTuple):
    """What does not change from one answer to the next; plans last ``wanted`` ticks."""

    graph: Graph
    delay: Ints
    choices: Choices
    levels: Levels
    lanes: Packed
    limits: Limits
    wanted: int


class RunningPrices(NamedTuple):
    """What has come of the answers so far: prices, tolls, homes and mean durations, changed in place.

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
    """What these prices prove; every lane's home is the best of all."""
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
    """What all changes that are allowed cost."""
    return toll * most if most < np.inf else 0.0
