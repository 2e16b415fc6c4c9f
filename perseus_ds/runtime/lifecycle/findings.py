"""What the log states of a plan, and what was found when it was measured, in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from perseus_ds.plan import Expected, FrequencyPlan, PlanSet, certified, doubt, too_little_reserve
from perseus_ds.profile import Profile
from perseus_ds.run_directory.records import Summary
from perseus_ds.runtime.accounting import Mode, RankReport
from perseus_ds.runtime.lifecycle.job_context import JobContext

_MOST_OVERRUNS = 0.01
_MOST_SLOWER_PCT = 0.2
"""How much longer than planned an iteration may last before it is reported."""
_OTHER_K = 10.0
"""By as much energies are off by some 1 %."""


class PlanLines:
    """Lines for batches of one size, which ``named`` names where there are several."""

    def __init__(self, context: JobContext, named: str) -> None:
        self._context = context
        self._named = named

    def doubts(self, plans: PlanSet) -> None:
        """Report doubts about a frontier of plans."""
        log = self._context.log
        if doubtful := doubt(plans):
            log.event("doubtful", f"{self._named}{doubtful}")
        if plans.change.longest_s >= plans.t_min_s:
            log.event(
                "one_clock",
                f"{self._named}a change of clock takes {plans.change.longest_s:.3g} s and the fastest "
                f"iteration {plans.t_min_s:.3g} s: every GPU keeps one clock",
            )
        if short := too_little_reserve(plans):
            log.event(
                "reserve",
                f"{self._named}{short}",
                reserve_pct=plans.reserve_pct,
                variation_slowdown_pct=plans.variation_slowdown_pct,
            )

    def running(self, plan: FrequencyPlan, hope: Expected) -> None:
        """Report the plan that is run, and what is expected of it."""
        plans = plan.of
        self._context.log.event(
            "running",
            f"{self._named}running plan {plan.index} of {len(plans)} (0 is the fastest): "
            f"{plan.iteration_time_s:.4g} s per iteration{self._context.whose_time} "
            f"({with_error(hope.slowdown_pct, hope.slowdown_within_pct, signed=True)} expected), "
            f"saves {with_error(hope.saving_pct, hope.within_pct, decimals=1)}, "
            f"{certified(float(plans.gap_pct[plan.index]))}",
            plan=plan.index,
            microbatches=self._context.job.schedule.microbatches,
            iteration_time_s=plan.iteration_time_s,
            reserve_pct=plans.reserve_pct,
            planned_saving_pct=plan.saving_pct,
            predicted_saving_pct=hope.saving_pct,
            predicted_saving_within_pct=hope.within_pct,
            predicted_slowdown_pct=hope.slowdown_pct,
            predicted_slowdown_within_pct=hope.slowdown_within_pct,
            gap_pct=float(plans.gap_pct[plan.index]),
            solve_time_s=plans.solve_time_s,
        )


def too_slow(reports: Sequence[RankReport]) -> str:
    """Report that a host could not keep up with the GPUs that it simulates; empty where it could."""
    worst = max(report.overrun_share for report in reports)
    if worst <= _MOST_OVERRUNS:
        return ""
    return (
        f"no saving is claimed: {100.0 * worst:.1f} % of the computations took this host longer than the "
        'simulated GPU; set simulated.time to "virtual", or a larger simulated.time_scale'
    )


def contradiction(summary: Summary, plan_error_pct: float, *, paced: bool = False) -> str:
    """Return a line where measurement and plan differ by more than their errors; else "".

    ``paced``: replicas were paced by loads, which saves more; what is expected does not count it.
    """
    within = summary.saving_within_pct
    if within is None:
        return ""
    apart = summary.saving_pct - summary.predicted_saving_pct
    allowed = within + plan_error_pct
    if abs(apart) <= allowed or (paced and apart > 0.0):
        return ""
    return (
        f"the measurement contradicts the plan, which promised {summary.predicted_saving_pct:.1f} %: "
        f"{abs(apart):.1f} points {'more' if apart > 0 else 'less'}, where {allowed:.1f} can be chance; "
        "remove profile.json and the plan to measure again, in longer windows (perseus.profile.min_window_s)"
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
        " for less saving. Where iterations were as planned before, remove profile.json and the plan to"
        " measure again"
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


def power_cap_line(power_w: float | None, cost: Mapping[str, float]) -> tuple[str, dict[str, object]]:
    """Return the line and the facts of a power cap that has come, changed or ended.

    ``cost`` is that of the plan below it (`ActivePlan.power_cap_cost`), empty while no plan runs.
    """
    if power_w is None:
        return "no power cap holds any more", {"power_w": None}
    facts: dict[str, object] = {"power_w": power_w, **cost}
    told = f"power cap of {power_w:.0f} W for the job"
    if not cost:
        return f"{told}: not held yet, no plan runs", facts
    if cost["plan_w"] > power_w:
        told += " cannot be held"
    return (
        f"{told}: plan {cost['plan']} takes {cost['plan_w']:.0f} W, {cost['slowdown_pct']:.1f} % slower",
        facts,
    )
