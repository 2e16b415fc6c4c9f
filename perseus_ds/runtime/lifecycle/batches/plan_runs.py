"""From the texts of plans to a running one: for batches of one size, with what its audits measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from perseus_ds.device import Capabilities
from perseus_ds.errors import PlanMismatchError
from perseus_ds.plan import FrequencyPlan, PlanSet, certified, doubt, loads, select, too_little_reserve
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

        Raises:
            PlanMismatchError: a clock that a rank's GPU does not have; alike on all.
        """
        audit = context.config.audit
        frontiers = [loads(text) for text in texts]
        context.channel.gather_results(
            lambda: check_clocks(
                frontiers[context.job.group],
                context.job.pipeline_rank,
                context.capabilities,
                where=context.directory.path,
            )
        )
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


def check_clocks(plans: PlanSet, rank: int, able: Capabilities, *, where: Path) -> None:
    """Compare what a plan would ask a rank's GPU for with what that GPU has, before anything is asked.

    Raises:
        PlanMismatchError: naming the clock.
    """
    wanted = {
        segment[:2]
        for key in {(i.stage, i.kind) for _, i in plans.computations_of(rank)}
        for option in range(len(plans.options[key].time_s))
        for segment in plans.options[key].segments(option)
    }
    if plans.wait_clock is not None:
        wanted.add((plans.wait_clock.clock_mhz, None))
    for clock_mhz, memory_mhz in wanted:
        if clock_mhz not in able.clocks_mhz or memory_mhz not in {None, *able.memory_clocks_mhz}:
            memory = "" if memory_mhz is None else f" and a memory clock of {memory_mhz} MHz"
            raise PlanMismatchError(
                f"the plan in {where} asks rank {rank} for {clock_mhz} MHz{memory}; its GPU has {able.grid}",
                hint="remove the plan, and the job makes one of its own",
            )


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
