"""A figure in words, with its numbers: for those who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseus_ds.plan import FrequencyPlan, certified
from perseus_ds.profile import Profile
from perseus_ds.report.contents.gpus import Course
from perseus_ds.report.number import short, signed
from perseus_ds.report.page.figure_data import SIDE_NAMES, clocks_mhz
from perseus_ds.report.timeline.lanes import energy_j, lanes, panel_name
from perseus_ds.run_directory import RecordedIteration


def of_timelines(timelines: Sequence[RecordedIteration]) -> str:
    """Every iteration's time, energy and share of waiting."""
    return "One iteration on a time axis. " + " ".join(
        f"{panel_name(one)}: {short(one.iteration_time_s)} s, {short(energy_j(one))} J,"
        f" GPUs wait {_waiting_pct(one):.0f} % of the time."
        for one in timelines
    )


def _waiting_pct(timeline: RecordedIteration) -> float:
    rows = lanes(timeline)
    gaps_s = sum(gap.duration_s for lane in rows for gap in lane.gaps)
    return 100.0 * gaps_s / (timeline.iteration_time_s * max(1, len(rows)))


def of_frontier(plan: FrequencyPlan) -> str:
    """Its ends and the job's place on it."""
    plans = plan.of
    ends = [f"{short(plans.iteration_time_s[end])} s and {short(plans.energy_j[end])} J" for end in (0, -1)]
    return (
        f"Energy against iteration time of {len(plans)} plans, from {ends[0]} to {ends[1]}. All clocks"
        " at maximum:"
        f" {short(plans.baseline.iteration_time_s)} s and {short(plans.baseline.energy_j)} J. The job"
        " runs plan"
        f" {plan.index}: {signed(plan.slowdown_pct, decimals=2)} % time, {plan.saving_pct:.1f} % energy"
        " saved,"
        f" {certified(float(plans.gap_pct[plan.index]))}."
    )


def of_clocks(plan: FrequencyPlan) -> str:
    """The range of clocks, and each stage's mean."""
    clocks = clocks_mhz(plan.of, [plan.index])[0].astype(float)
    clocks[clocks == 0] = np.nan
    stages = plan.of.schedule.stages
    means = [np.nanmean(clocks[stage::stages]) for stage in range(stages)]
    shown = ", ".join(f"stage {stage} {mean:.0f}" for stage, mean in enumerate(means[:16]))
    return (
        f"Clocks of plan {plan.index}, {np.nanmin(clocks):.0f} to {np.nanmax(clocks):.0f} MHz, a row per"
        " stage and kind,"
        " a column per microbatch. Means in MHz:"
        f" {shown}{' and more' if stages > 16 else ''}."  # noqa: PLR2004
    )


def of_profile(profile: Profile) -> str:
    """How much was measured, and by how much clocks change time and energy."""
    points = list(profile.points.values())
    slower = [max(p.time_s for p in row) / min(p.time_s for p in row) for row in points]
    leaner = [min(p.energy_j for p in row) / max(p.energy_j for p in row) for row in points]
    return (
        f"Time and energy of {len(points)} kinds of computation at {max(map(len, points))} clocks. The"
        " lowest clock takes"
        f" {min(slower):.1f} to {max(slower):.1f} times as long as the highest. The leanest needs"
        f" {100 * min(leaner):.0f} to {100 * max(leaner):.0f} % of the energy of the most wasteful one."
    )


def of_courses(courses: Sequence[Course]) -> str:
    """Each side's range of times and powers."""
    return "Over the run. " + " ".join(
        f"{SIDE_NAMES[one.side]}: {len(one.iteration)} samples, iteration time {short(min(one.time_s))} to"
        f" {short(max(one.time_s))} s, power {short(min(one.power_w))} to {short(max(one.power_w))} W."
        for one in courses
    )
