"""From the texts of plans to a running one: for batches of one size, with what its audits measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perseus_ds.plan import FrequencyPlan, certified, doubt, loads, select, too_little_reserve
from perseus_ds.run_directory import Summary
from perseus_ds.runtime.lifecycle.auditing import audited
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.phases import Running
from perseus_ds.runtime.lifecycle.planned.activating_plan import active_plan_of
from perseus_ds.runtime.lifecycle.planned.expecting import expected_pct


class PlanRuns:
    """Plans in force; ``summaries`` is what was measured so far, by the size of the batches (rank 0)."""

    def __init__(self) -> None:
        self.summaries: dict[int, Summary] = {}

    def begin(self, context: JobContext, texts: Sequence[str], *, named: str) -> Running:
        """Run the own group's plans; what is audited is held against those of the first.

        ``context`` is of batches of one size, which ``named`` says where there are several.
        """
        audit = context.config.audit
        frontiers = [loads(text) for text in texts]
        objectives = [select(plans, context.config.objective) for plans in frontiers]
        expected = [expected_pct(context, plan, group) for group, plan in enumerate(objectives)]
        for group, plan in enumerate(objectives):
            replicas = context.job.groups[group].replicas if context.job.mixed else ()
            _log_running(context, plan, expected[group], replicas, named)
        for plans in frontiers:
            if doubtful := doubt(plans):
                context.log.event("doubtful", f"{named}{doubtful}")
            if short := too_little_reserve(plans):
                context.log.event(
                    "reserve",
                    f"{named}{short}",
                    reserve_pct=plans.reserve_pct,
                    variation_slowdown_pct=plans.variation_slowdown_pct,
                )
        return Running(
            active_plan_of(context, frontiers, objectives[context.job.group]),
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=lambda: self._audited(context, objectives[0], expected[0], named),
            settling=math.ceil(audit.settle_s / objectives[0].iteration_time_s),
        )

    def _audited(self, context: JobContext, plan: FrequencyPlan, expected: float, named: str) -> None:
        summary = audited(context, plan, expected, named=named, others=self.summaries)
        if summary is not None:
            self.summaries[context.job.schedule.microbatches] = summary


def _log_running(
    context: JobContext, plan: FrequencyPlan, expected: float, replicas: Sequence[int], named: str
) -> None:
    plans = plan.of
    whose = f"replica {', '.join(map(str, replicas))}: " if replicas else ""
    context.log.event(
        "running",
        f"{named}{whose}running plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.4g} s "
        f"({round(plan.slowdown_pct, 2) + 0.0:+.2f} %), {plans.reserve_pct:g} % in reserve, "
        f"{plan.saving_pct:.1f} % energy saved as planned, "
        f"{expected:.1f} % to be expected as these GPUs change their clocks, "
        f"{certified(float(plans.gap_pct[plan.index]))}",
        plan=plan.index,
        microbatches=context.job.schedule.microbatches,
        iteration_time_s=plan.iteration_time_s,
        reserve_pct=plans.reserve_pct,
        planned_saving_pct=plan.saving_pct,
        predicted_saving_pct=expected,
        gap_pct=float(plans.gap_pct[plan.index]),
        solve_time_s=plans.solve_time_s,
        **({"replicas": list(replicas)} if replicas else {}),
    )
