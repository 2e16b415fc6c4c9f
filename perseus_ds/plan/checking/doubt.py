"""Whether a profile claims what cannot be: plans that are faster than all clocks at maximum."""

from __future__ import annotations

from perseus_ds.plan.record import PlanSet
from perseus_ds.profile import Profile

SURE = 3.0
"""Standard errors that make a difference more than chance."""
UNSAID_PCT = 0.5
"""Error that we grant a profile that states nothing of its own, in percent."""


def time_error_pct(profile: Profile) -> float:
    """By how much a mean duration of this profile may be off: the worst of all points.

    Units: percent of the duration, three standard errors; 0.5 where the profile gives none.
    """
    errors = [point.time_se_s / point.time_s for points in profile.points.values() for point in points]
    return max(100.0 * SURE * max(errors, default=0.0), UNSAID_PCT)


def doubt(plans: PlanSet) -> str | None:
    """Report that a frontier is faster than it can be, if it is by more than the measurement's error."""
    faster_pct = 100.0 * (1.0 - float(plans.iteration_time_s[0]) / plans.baseline.iteration_time_s)
    if faster_pct <= plans.time_error_pct:
        return None
    return (
        f"the profile is doubtful: its fastest plan claims to be {faster_pct:.2f} % faster than all clocks at"
        f" maximum, and durations are known to {plans.time_error_pct:.2g} %. Measure longer"
        " (perseus.profile.min_window_s)"
    )
