"""Plans between two others: the first part of an iteration from one of them, the rest from the other."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from perseus_ds.solver.beam.choices import Choices
from perseus_ds.solver.network import Whole
from perseus_ds.solver.problem import Indices


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
    """Whether the middle plan is on or above the line between the others."""
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
