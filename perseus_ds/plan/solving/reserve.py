"""How much slack a plan leaves unused, because durations vary: given, or as much as their variation asks for.

A plan that fills all slack has many paths that are just critical. Of many that vary one is always longer than
planned, although none is on average.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.solving.variation import Draws
from perseus_ds.solver import Plans

Reserve = float | Literal["automatic"]
"""Percent by which stretched computations are planned longer than they last on average."""

ALLOWED_PCT = 0.1
"""How much longer the fastest plan's iterations may last, on average, for durations vary."""
CANDIDATES_PCT = 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0
_MORE_PCT = 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 70.0, 100.0, 200.0, 400.0, 1000.0, 3000.0, 10_000.0
BY_LOAD_PCT = CANDIDATES_PCT + _MORE_PCT
"""The same where microbatches differ in their loads: then slack that is there on average often is not."""
UNKNOWN_PCT = 1.0
"""Reserve where a profile does not state how durations vary: enough for one percent."""
MOST_PCT = 20.0
"""What ``objective.reserve_pct`` may be at most."""


def reserve_in_words(reserve: Reserve) -> str:
    """As fingerprints name it: without the unit, and "auto" as files of all releases have it."""
    return "auto" if reserve == "automatic" else f"{reserve:g}"


def least_reserve_pct(draws: Draws | None, fastest: Callable[[float], Plans]) -> float:
    """Find the least reserve with which the fastest plan loses no time to what varied in the profile.

    ``fastest`` plans for the shortest time with a reserve of so many percent. Returns the largest candidate
    if none suffices.

    Cost: five plans at most.
    """
    if draws is None:
        return UNKNOWN_PCT

    def is_enough(reserve_pct: float) -> bool:
        return draws.slowdown_pct(fastest(reserve_pct)) <= ALLOWED_PCT

    candidates = BY_LOAD_PCT if draws.problem.load_variation else CANDIDATES_PCT
    if is_enough(candidates[0]):
        return candidates[0]
    found = bisect_left(candidates, True, lo=1, hi=len(candidates) - 1, key=is_enough)
    return candidates[found]


def too_little_reserve(plans: PlanSet) -> str | None:
    """Describe by how much iterations last longer than planned; None where an automatic reserve allows it."""
    slower_pct = plans.variation_slowdown_pct
    if slower_pct is None or slower_pct <= ALLOWED_PCT:
        return None
    most = ", the most that automatic keeps," if plans.reserve_pct == CANDIDATES_PCT[-1] else ""
    more_pct = min(max(1.0, 2.0 * plans.reserve_pct), MOST_PCT)
    advice = f"; reserve_pct {more_pct:g} keeps more, for less saving" if more_pct > plans.reserve_pct else ""
    return (
        f"a reserve of {plans.reserve_pct:g} %{most} is too little for durations that vary as in the profile:"
        f" iterations of the fastest plan will last {slower_pct:.2f} % longer on average{advice}"
    )
