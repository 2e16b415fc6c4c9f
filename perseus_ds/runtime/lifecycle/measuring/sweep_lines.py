"""What a sweep reports to its user: when it begins, after every window, and where something is odd."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.profile.sweep_cost import SweepCost, in_words
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.measuring.choosing import ClockChoice
from perseus_ds.runtime.pooling import MeasuredSweep, Pooled


def log_begin(context: JobContext, choice: ClockChoice, cost: SweepCost) -> None:
    """State how many clocks are measured, and what that costs."""
    context.log.event(
        "profiling",
        f"profiling {choice.count} clocks: about {in_words(cost.lasts_s)}{context.whose_time}, "
        f"training up to {cost.slower_pct:.0f} % slower meanwhile",
        clock_mhz=choice.grid_mhz[0],
        done=0,
        total=choice.count,
        iterations=choice.window.at(),
        lasts_s=cost.lasts_s,
        slower_pct=cost.slower_pct,
    )


def log_measured(
    log: EventLog, clock_mhz: int, measured: MeasuredSweep, choice: ClockChoice, left_s: float, *, again: bool
) -> None:
    """State what is known by now, and how long the rest takes."""
    left = f"; about {in_words(left_s)} left" if left_s else ""
    place = "once more" if again else f"({measured.sweep.done} of {choice.count}){left}"
    log.event(
        "profiling",
        f"profiled {clock_mhz} MHz {place}",
        clock_mhz=clock_mhz,
        done=measured.sweep.done,
        total=choice.count,
        left_s=left_s,
    )


def log_varying(log: EventLog, measured: MeasuredSweep) -> None:
    """State that every clock is measured a second time, and why."""
    log.event(
        "varying",
        f"computations vary by {100.0 * measured.spread:.0f} % at one clock: batches change, or others are "
        "at work. Every clock is measured a second time, from the last to the first, and the plan is as "
        "sure as both agree",
        spread=measured.spread,
    )


def log_not_held(log: EventLog, clocks_mhz: Sequence[int]) -> None:
    """State which clocks no plan uses, as they do not hold."""
    log.event(
        "not_held",
        f"{', '.join(map(str, clocks_mhz))} MHz do not hold under this job's load: no plan uses them",
        clocks_mhz=list(clocks_mhz),
    )


def log_observed(log: EventLog, seen: Pooled) -> None:
    """State what one window at default clocks shows."""
    rows = [
        {"computation": f"{stage}{kind.value}", "time_s": point.time_s, "energy_j": point.energy_j}
        | {"energy_se_j": point.energy_se_j, "clock_mhz": point.achieved_mhz}
        for (stage, kind), point in seen.points.items()
    ]
    energy_j = sum(point.energy_j for point in seen.points.values())
    log.event(
        "observed",
        f"observed at default clocks: {energy_j:.4g} J in one microbatch's computations, "
        f"{seen.blocking_power_w:.4g} W while waiting",
        blocking_power_w=seen.blocking_power_w,
        computations=rows,
    )
