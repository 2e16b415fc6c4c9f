"""Whether iterations will last longer than planned, since durations vary by more than the reserve covers."""

from __future__ import annotations

from perseus_ds.plan.record import PlanSet
from perseus_ds.plan.solving.reserve import ALLOWED_PCT, CANDIDATES_PCT

MOST_PCT = 20.0
"""What ``objective.reserve_pct`` may be at most."""


def too_little_reserve(plans: PlanSet) -> str | None:
    """Say by how much, and what keeps more; None where it is as little as an automatic reserve allows."""
    slower_pct = plans.variation_slowdown_pct
    if slower_pct is None or slower_pct <= ALLOWED_PCT:
        return None
    most = ", the most that automatic keeps," if plans.reserve_pct == CANDIDATES_PCT[-1] else ""
    more_pct = min(max(1.0, 2.0 * plans.reserve_pct), MOST_PCT)
    return (
        f"a reserve of {plans.reserve_pct:g} %{most} is too little for durations that vary as in the profile:"
        f" iterations will last {slower_pct:.2f} % longer on average at the fastest plan; reserve_pct"
        f" {more_pct:g} keeps more, for less saving"
    )
