"""Make the plan in force on this stage out of what a job knows."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.device import ClockChange
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.control.clock_schedules import ClockScheduleCache
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.observe.straggler_reporter import StragglerReporter
from perseus_ds.straggler import FrontierIndex, ReplicaPlans


def active_plan_of(context: JobContext, frontiers: Sequence[PlanSet], objective: FrequencyPlan) -> ActivePlan:
    """Prepare this stage's part of every plan, and the watch over replicas where there are several.

    Shape: ``frontiers`` [groups]; ``objective`` is a plan of this rank's.
    """
    job, config = context.job, context.config
    plans = frontiers[job.group]
    context.arrivals.expect(plans.fixed_s)
    change = ClockChange.of(context.capabilities)
    schedules = ClockScheduleCache(plans, pipeline_rank=job.pipeline_rank, change=change)
    if job.replicas == 1 or not config.straggler.enabled:
        return ActivePlan(schedules, objective)
    indexes = [FrontierIndex.of(one, config.objective) for one in frontiers]
    groups = [job.group_of(replica) for replica in range(job.replicas)]
    return ActivePlan(
        schedules,
        objective,
        replica=job.replica,
        replica_plans=ReplicaPlans(
            [indexes[group] for group in groups],
            max_cost_pct=config.straggler.max_cost_pct,
            exposed=2 + context.arrivals.behind,
        ),
        reporter=StragglerReporter(context.log, [frontiers[group] for group in groups]),
        behind=context.arrivals.behind,
    )
