"""Prices of time and tolls of changes for one rung of a budget: a game of paths against lanes.

The relaxed optimum does not know that changes are few: its prices ask for more of them than there may be.
Here lanes answer prices with the cheapest levels that few changes allow, paths answer durations with flow
where it takes longest, and tolls rise where a lane changes too often. The more answers are averaged, the
nearer the prices come to those that bound the cost of any such plan best.

Source: Brown 1951, fictitious play; Freund and Schapire 1999, multiplicative weights.
"""
# ruff: noqa: PLR0917 - records and arrays by position: compiled code knows no keywords

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.beam.levels import Levels
from perseus_ds.solver.compiling.compiled import compiled, inner, number
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Floats, Indices, Ints
from perseus_ds.solver.timeline.allowance import Rung
from perseus_ds.solver.whole import Whole

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
    """Play from the relaxed flows (through activities, across precedences) for plans of so many ticks.

    Cost: linear in activities times levels, and in precedences, per round.
    """
    lane_most, group_most = rung.limits()
    price, across = flows[0].copy(), flows[1].copy()
    count = len(lane_most)
    start_toll = START * max(float(np.ptp(table.cost_j)) for table in whole.problem.tables)
    home, lane_toll, group_toll = (
        np.zeros(count, np.int32),
        np.full(count, start_toll) * np.isfinite(lane_most),
        np.full(len(group_most), start_toll) * np.isfinite(group_most),
    )
    mean = np.empty(len(price))
    bound = _play(
        whole.graph,
        whole.delay,
        choices,
        levels,
        lanes,
        rung.group_of,
        lane_most,
        group_most,
        price,
        across,
        lane_toll,
        group_toll,
        home,
        mean,
        wanted,
        ROUNDS,
    )
    toll = lane_toll + group_toll[rung.group_of]
    return Prices(price, across, toll, home, np.rint(mean).astype(np.int64), float(bound))


@compiled
def _play(
    graph: Graph,
    delay: Ints,
    choices: Choices,
    levels: Levels,
    lanes: Packed,
    group_of: Indices,
    lane_most: Floats,
    group_most: Floats,
    price: Floats,
    across: Floats,
    lane_toll: Floats,
    group_toll: Floats,
    home: Indices,
    mean: Floats,
    wanted: int,
    rounds: int,
) -> float:
    """Change prices, tolls, homes and means in place; return the bound that they prove at the end."""
    count, width = len(price), levels.place.shape[1]
    value = 0.0
    for activity in range(count):
        if graph.first_before[activity] == graph.first_before[activity + 1]:
            value += price[activity]
    duration = np.empty(count)
    for activity in range(count):
        duration[activity] = choices.length[choices.first[activity]]
    ahead, answer = np.empty((count + 1, width)), np.empty((count, width), np.int32)
    through, over = np.empty(count), np.empty(len(delay))
    upto = np.empty(count)
    changes, together = np.empty(len(lane_most)), np.empty(len(group_most))
    for turn in range(rounds):
        together[:] = 0.0
        for lane in range(len(lane_most)):
            toll = lane_toll[lane] + group_toll[group_of[lane]]
            begins = _look_back(choices, levels, lanes, lane, price, toll, home[lane], ahead, answer)
            changes[lane] = _follow(choices, levels, lanes, lane, home[lane], answer, duration)
            home[lane] = begins
            together[group_of[lane]] += changes[lane]
        share = 2.0 / (turn + 2.0)
        for activity in range(count):
            mean[activity] += (
                share * (duration[activity] - mean[activity]) if turn else duration[activity] - mean[activity]
            )
        pace = _PACE / np.sqrt(turn + 1.0)
        _turn(lane_toll, changes, lane_most, pace)
        _turn(group_toll, together, group_most, pace)
        sharp = SHARPNESS * count * np.sqrt(turn + 1.0) / wanted
        _spread(graph, delay, mean, sharp, upto, through, over)
        share = 1.5 / (turn + _OLD)
        for activity in range(count):
            price[activity] += share * (value * through[activity] - price[activity])
        for arc in range(len(delay)):
            across[arc] += share * (value * over[arc] - across[arc])
    return _bound(
        choices,
        levels,
        lanes,
        group_of,
        lane_most,
        group_most,
        price,
        across,
        delay,
        lane_toll,
        group_toll,
        home,
        ahead,
        answer,
        wanted,
        value,
    )


@inner
def _turn(toll: Floats, changes: Floats, most: Floats, pace: float) -> None:
    """Raise tolls where there are more changes than wanted, lower them where there are fewer."""
    for which in range(len(toll)):
        if most[which] < np.inf:
            off = pace * (changes[which] - most[which]) / max(most[which], 1.0)
            toll[which] *= np.exp(min(max(off, -_FASTEST), _FASTEST))


@inner
def _look_back(
    choices: Choices,
    levels: Levels,
    lanes: Packed,
    lane: int,
    price: Floats,
    toll: float,
    home: int,
    ahead: Floats,
    answer: Indices,
) -> int:
    """The least that a lane costs from each activity on by the level before it, and what is taken there.

    Returns the level that it would begin at were none before it.
    """
    begin, end = lanes.first[lane], lanes.first[lane + 1]
    order, table, place, length, cost = lanes.order, levels.table, levels.place, choices.length, choices.cost
    width, best = place.shape[1], number(0)
    for level in range(width):
        ahead[end - begin, level] = 0.0 if level == home else toll
    for at in range(end - begin - 1, -1, -1):
        activity = order[begin + at]
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
def _follow(
    choices: Choices, levels: Levels, lanes: Packed, lane: int, home: int, answer: Indices, duration: Floats
) -> float:
    """Write what each activity lasts; return how often the lane changes."""
    begin, end = lanes.first[lane], lanes.first[lane + 1]
    here, changes = home, 0.0
    for at in range(end - begin):
        activity = lanes.order[begin + at]
        there = answer[at, here]
        if there != here:
            changes += 1.0
            here = there
        duration[activity] = choices.length[levels.place[levels.table[activity], here]]
    if here != home:
        changes += 1.0
    return changes


@inner
def _spread(  # noqa: C901 - forward, then backward
    graph: Graph,
    delay: Ints,
    duration: Floats,
    sharp: float,
    upto: Floats,
    through: Floats,
    over: Floats,
) -> None:
    """One unit of flow over all paths, each by the exponential of its length: forward, then backward."""
    count, total = len(duration), 0.0
    top = -np.inf
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
    total = top + np.log(total)
    for at in range(count - 1, -1, -1):  # what flows on from an activity came by its arcs, in their shares
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
def _bound(
    choices: Choices,
    levels: Levels,
    lanes: Packed,
    group_of: Indices,
    lane_most: Floats,
    group_most: Floats,
    price: Floats,
    across: Floats,
    delay: Ints,
    lane_toll: Floats,
    group_toll: Floats,
    home: Indices,
    ahead: Floats,
    answer: Indices,
    wanted: int,
    value: float,
) -> float:
    """What these prices prove; every lane's home is the best of all."""
    found = -value * wanted
    for arc in range(len(delay)):
        found += across[arc] * delay[arc]
    for activity in range(len(price)):
        if levels.lane[activity] < 0:
            only = choices.first[activity]
            found += choices.cost[only] + price[activity] * choices.length[only]
    for lane in range(len(lane_most)):
        toll = lane_toll[lane] + group_toll[group_of[lane]]
        least = np.inf
        for level in range(levels.place.shape[1]):
            _look_back(choices, levels, lanes, lane, price, toll, level, ahead, answer)
            if ahead[0, level] < least:
                least, home[lane] = ahead[0, level], level
        found += least - (lane_toll[lane] * lane_most[lane] if lane_most[lane] < np.inf else 0.0)
    for group in range(len(group_most)):
        found -= group_toll[group] * group_most[group] if group_most[group] < np.inf else 0.0
    return found
