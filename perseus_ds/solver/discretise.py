"""From durations to real options: for every wanted time a plan that keeps it, with its certified bound."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from perseus_ds.solver.beam import Choices, beam, choices_of, guide_at
from perseus_ds.solver.frontier import Frontier, bounds_at
from perseus_ds.solver.network import Whole
from perseus_ds.solver.problem import Floats, Indices, Plans, Problem, blended, undominated

# Plans between two others: the first part of an iteration from one of them, the rest from the other.


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A place for every activity, the longest path in ticks, and the cost.

    Shape: ``place`` [activities].
    """

    place: Indices
    ticks: int
    cost_j: float


def plan_of(whole: Whole, choices: Choices, place: Indices) -> Plan:
    """Add up a choice of places.

    Cost: linear.
    """
    return Plan(place, whole.longest(choices.length[place]), float(choices.cost[place].sum()))


def convex(plans: list[Plan]) -> list[Plan]:
    """Keep the plans that no mixture of two others beats, time ascending and cost falling.

    Source: Andrew 1979, the monotone chain.
    """
    kept: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.ticks, plan.cost_j)):
        if kept and plan.cost_j >= kept[-1].cost_j:
            continue
        while len(kept) > 1 and _above(kept[-2], kept[-1], plan):
            kept.pop()
        kept.append(plan)
    return kept


def _above(left: Plan, middle: Plan, right: Plan) -> bool:
    """Return whether the middle plan is on or above the line between the others."""
    fall = (left.cost_j - middle.cost_j) * (right.ticks - left.ticks)
    return fall <= (left.cost_j - right.cost_j) * (middle.ticks - left.ticks)


def spliced(whole: Whole, choices: Choices, order: Indices, corners: list[Plan], wanted: int) -> Plan:
    """Return the cheapest plan within the wanted time that changes over once between two neighbours.

    Where all stages keep step, a plan for a time in between runs some rounds as the faster plan and the rest
    as the slower. Mixing them within a round would make each wait for the other.

    Shape: ``order`` [activities], the order in which the iteration is cut in two.
    Cost: two dozen longest paths.
    """
    here = bisect.bisect_right([corner.ticks for corner in corners], wanted) - 1
    best = corners[here]
    if here + 1 < len(corners):
        faster, slower = corners[here], corners[here + 1]
        for pair in ((faster, slower), (slower, faster)):
            plan = _changing_over(whole, choices, order, pair, wanted)
            best = min(best, plan, key=lambda plan: plan.cost_j)
    return best


def _changing_over(
    whole: Whole, choices: Choices, order: Indices, pair: tuple[Plan, Plan], wanted: int
) -> Plan:
    """Bisect for the change-over that keeps the wanted time with as little of the faster plan as possible."""
    first, then = pair
    good = first if first.ticks <= wanted else then
    fits, fails = (len(order), 0) if good is first else (0, len(order))
    while abs(fits - fails) > 1:
        cut = (fits + fails) // 2
        place = then.place.copy()
        place[order[:cut]] = first.place[order[:cut]]
        plan = plan_of(whole, choices, place)
        if plan.ticks <= wanted:
            fits = cut
            good = min(good, plan, key=lambda plan: plan.cost_j)
        else:
            fails = cut
    return good


BEAMS, ACTIVITIES = 192, 50_000
"""Times at most that get a beam of their own, more where they make so many activities; others are spliced."""
WORK = 12_000_000
"""Partial plans that all beams together may continue, apart from what the narrowest take anyway."""
NARROWEST, WIDEST = 32, 2048
"""Partial plans that a beam keeps side by side."""
FEW = 32
"""Fewer times than that do not get wider beams."""
FIRST = 24
"""How much wider the beam for the shortest time is: that plan costs no speed, so most users run it."""
LEANING = 0.1, 0.2
"""Shares of the strain that beams count, in turn: neighbours on the frontier that search differently."""


def discretise(problem: Problem, frontier: Frontier, times_s: Floats) -> Plans:
    """Choose an option for every activity and every wanted time; drop plans that another beats.

    Raises:
        InfeasibleError: a wanted time below T_min.
    Cost: a beam for each of some times, a splice for each time.
    """
    frontier.refuse_below(times_s)
    choices = choices_of(frontier.whole)
    wanted_s = np.sort(np.asarray(times_s))
    searched = _searched(frontier, choices, wanted_s)
    plans = searched + list(_between(frontier, choices, convex(searched), wanted_s))
    time_s = frontier.whole.tick.real(np.array([plan.ticks for plan in plans], dtype=np.int64))
    places = np.array([plan.place for plan in plans], dtype=np.int32).reshape(len(plans), len(problem))
    choice = choices.option[places]
    share = np.ones(choice.shape)
    cost_j = blended(problem, choice, choice, share)[1].sum(axis=1)
    best = undominated(time_s, cost_j)
    return Plans(time_s, cost_j, bounds_at(frontier, time_s), choice, choice, share).at(best)


def _searched(frontier: Frontier, choices: Choices, wanted_s: Floats) -> list[Plan]:
    """Search with a beam at some of the times, the first and the last among them."""
    whole = frontier.whole
    count = min(len(wanted_s), max(BEAMS, ACTIVITIES // len(whole.problem)))
    chosen = np.unique(np.linspace(0, len(wanted_s) - 1, count).round().astype(np.int64))
    width = max(WORK // (max(len(chosen), FEW) * len(whole.problem)), NARROWEST)

    def searched(number: int) -> Plan:
        time_s = float(wanted_s[chosen[number]])
        guide = guide_at(frontier, choices, time_s, frontier.whole.within(time_s))
        wide = min(width if number else FIRST * width, WIDEST)
        leaning = LEANING[(number + 1) % len(LEANING)]
        return plan_of(whole, choices, beam(whole.graph, whole.delay, choices, guide, wide, leaning))

    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as threads:
        return list(threads.map(searched, range(len(chosen))))


def _between(frontier: Frontier, choices: Choices, corners: list[Plan], wanted_s: Floats) -> Iterator[Plan]:
    """For every wanted time a splice."""
    whole = frontier.whole
    for time_s in wanted_s:
        wanted = whole.within(float(time_s))
        order = guide_at(frontier, choices, float(time_s), wanted).order
        yield spliced(whole, choices, order, corners, wanted)
