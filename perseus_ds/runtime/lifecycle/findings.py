"""Findings of what was measured, in one line each: too slow a host, a contradiction, lost time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from perseus_ds.profile import Profile
from perseus_ds.run_directory import Summary
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.observe.rank_report import RankReport

_MOST_OVERRUNS = 0.01
_MOST_SLOWER_PCT = 0.2
"""How much longer than planned an iteration may last before it is reported."""
_OTHER_K = 10.0
"""By as much energies are off by some 1 %."""


def too_slow(reports: Sequence[RankReport]) -> str:
    """Report that a host could not keep up with the GPUs that it simulates; empty where it could."""
    worst = max(report.overrun_share for report in reports)
    if worst <= _MOST_OVERRUNS:
        return ""
    return (
        f"no saving is claimed: {100.0 * worst:.1f} % of the computations took this host longer than the "
        'simulated GPU; set simulated.time to "virtual", or a larger simulated.time_scale'
    )


def contradiction(summary: Summary, plan_error_pct: float, *, by_loads: bool = False) -> str:
    """Return a line where measurement and plan differ by more than their errors; else "".

    ``by_loads``: pacing by loads saves more than the plan, and what is expected does not count it.
    """
    within = summary.saving_within_pct
    if within is None:
        return ""
    apart = summary.saving_pct - summary.predicted_saving_pct
    allowed = within + plan_error_pct
    if abs(apart) <= allowed or (by_loads and apart > 0.0):
        return ""
    return (
        f"the measurement contradicts the plan, which promised {summary.predicted_saving_pct:.1f} %: "
        f"{abs(apart):.1f} points {'more' if apart > 0 else 'less'}, where {allowed:.1f} can be chance; "
        "a profile of longer windows (perseus.profile.min_window_s) would show which is right"
    )


def slower(summary: Summary, planned_pct: float, reserve_pct: float, *, within_pct: float = 0.0) -> str:
    """Report that iterations last longer than planned, beyond both errors, and what helps; else nothing."""
    within = summary.slowdown_within_pct
    if within is None:
        return ""
    longer = summary.slowdown_pct - max(planned_pct, 0.0)
    if longer - within - within_pct <= _MOST_SLOWER_PCT:
        return ""
    better_pct = max(2.0, 2.0 * reserve_pct)
    return (
        f"iterations last {longer:.2f} % longer than planned: durations vary by more than the"
        f" reserve of {reserve_pct:g} %; objective.reserve_pct {better_pct:g} would keep more,"
        " for less saving"
    )


def other_temperature(
    profile: Profile, reports: Sequence[RankReport], stages: Sequence[Sequence[int]]
) -> str:
    """Report that GPUs at default clocks are as warm as none was in the profile; empty where they are alike.

    Shape: ``stages`` [pipeline ranks], the model stages of each.
    """
    for report in reports:
        profiled_c = [
            point.temperature_c
            for (stage, _), points in profile.points.items()
            if stage in stages[report.pipeline_rank]
            for point in points
            if point.temperature_c is not None
        ]
        now_c = report.temperature_c.get(Mode.BASELINE)
        if now_c is None or not profiled_c or abs(now_c - fmean(profiled_c)) <= _OTHER_K:
            continue
        return (
            f"temperature_c of the profile is {fmean(profiled_c):.0f} degrees C, and the GPU of rank "
            f"{report.rank} is at {now_c:.0f}: expected energies may be off by a percent or more; "
            "remove profile.json and the plan to measure again"
        )
    return ""


def with_error(value_pct: float, within_pct: float | None, *, decimals: int = 2, signed: bool = False) -> str:
    """Write a percentage with half of its 95 % interval."""
    rounded = round(value_pct, decimals) + 0.0
    number = f"{rounded:+.{decimals}f}" if signed else f"{rounded:.{decimals}f}"
    return f"{number} %" if within_pct is None else f"{number} +- {within_pct:.{decimals}f} %"
