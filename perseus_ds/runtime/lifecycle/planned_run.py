"""From the texts of plans to a running one: for batches of one size, with what its audits measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perseus_ds.config import Objective
from perseus_ds.device import Capabilities
from perseus_ds.errors import PlanMismatchError
from perseus_ds.plan import (
    Expected,
    FrequencyPlan,
    PlanSet,
    certified,
    doubt,
    loads,
    select,
    too_little_reserve,
)
from perseus_ds.run_directory import Summary
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.lifecycle.auditing import Audit, audited
from perseus_ds.runtime.lifecycle.findings import with_error
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.keeping import bound_of, kept
from perseus_ds.runtime.lifecycle.phases import Running
from perseus_ds.runtime.lifecycle.planned.activating_plan import active_plan_of
from perseus_ds.runtime.lifecycle.planned.expecting import expected_of
from perseus_ds.runtime.measure.accounting import Mode

_ABSOLUTE = frozenset({"deadline", "max_slowdown", "power_cap"})


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
        audit, frontiers = context.config.audit, [loads(text) for text in texts]
        context.channel.gather_results(
            lambda: check_clocks(
                frontiers[context.job.group],
                context.job.pipeline_rank,
                context.capabilities,
                where=context.directory.path,
            )
        )
        chosen = _chosen(context, frontiers, named)
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

        def audited_plan() -> ActivePlan | None:
            nonlocal chosen
            other = self._audited(context, chosen, named)
            if other is None:
                return None
            chosen = _chosen(with_objective(context, other), frontiers, named)
            for side in (context.account, context.durations):
                side.forget(Mode.PERSEUS, microbatches=context.job.schedule.microbatches)
            return chosen.active_plan

        return Running(
            chosen.active_plan,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=audited_plan,
            settling=math.ceil(audit.settle_s / chosen.plan.iteration_time_s),
        )

    def _audited(self, context: JobContext, chosen: _Chosen, named: str) -> Objective | None:
        """Publish an audit; return the objective to go on with, where that of the user is not kept."""
        audit = audited(context, chosen.plan, chosen.expected, named=named, others=self.summaries)
        if audit is not None:
            self.summaries[context.job.schedule.microbatches] = audit.summary
        if context.config.objective.policy not in _ABSOLUTE:
            return None
        other: Objective | None = context.channel.broadcast_result(
            lambda: None if audit is None else _kept(context, chosen.plan, audit, named)
        )
        return other


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The first group's plan by the objective and what is expected of it; and this rank's, in force."""

    plan: FrequencyPlan
    expected: Expected
    active_plan: ActivePlan


def _chosen(context: JobContext, frontiers: Sequence[PlanSet], named: str) -> _Chosen:
    objectives = [select(plans, context.config.objective) for plans in frontiers]
    expected = [expected_of(context, plan, group) for group, plan in enumerate(objectives)]
    for group, plan in enumerate(objectives):
        replicas = context.job.groups[group].replicas if context.job.mixed else ()
        _log_running(context, plan, expected[group], replicas, named)
    active_plan = active_plan_of(context, frontiers, objectives[context.job.group])
    return _Chosen(objectives[0], expected[0], active_plan)


def with_objective(context: JobContext, objective: Objective) -> JobContext:
    """The same job that wants something else."""
    return replace(context, config=replace(context.config, objective=objective))


def _kept(context: JobContext, plan: FrequencyPlan, audit: Audit, named: str) -> Objective | None:
    """Say that the objective's own limit is missed, and what is done; None where it is kept."""
    job = context.job
    bound = bound_of(
        context.config.objective,
        plan,
        audit.summary,
        audit.latest,
        pipelines=max(1, job.ranks // job.schedule.ranks),
    )
    if bound is None or not bound.missed:
        return None
    line, other = kept(bound, context.config.objective, plan)
    context.log.event(
        "objective_missed", f"{named}{line}", limit=bound.limit, measured=bound.measured, plan=plan.index
    )
    return None if job.mixed else other  # each group would need a limit of its own


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
    context: JobContext, plan: FrequencyPlan, expected: Expected, replicas: Sequence[int], named: str
) -> None:
    plans = plan.of
    whose = f"replica {', '.join(map(str, replicas))}: " if replicas else ""
    context.log.event(
        "running",
        f"{named}{whose}running plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.4g} s "
        f"per iteration ({with_error(expected.slowdown_pct, expected.slowdown_within_pct, signed=True)} "
        "expected), saves "
        f"{with_error(expected.saving_pct, expected.within_pct, decimals=1)} "
        f"({plan.saving_pct:.1f} % planned), {plans.reserve_pct:g} % in reserve, "
        f"{certified(float(plans.gap_pct[plan.index]))}",
        plan=plan.index,
        microbatches=context.job.schedule.microbatches,
        iteration_time_s=plan.iteration_time_s,
        reserve_pct=plans.reserve_pct,
        planned_saving_pct=plan.saving_pct,
        predicted_saving_pct=expected.saving_pct,
        predicted_saving_within_pct=expected.within_pct,
        predicted_slowdown_pct=expected.slowdown_pct,
        predicted_slowdown_within_pct=expected.slowdown_within_pct,
        gap_pct=float(plans.gap_pct[plan.index]),
        solve_time_s=plans.solve_time_s,
        **({"replicas": list(replicas)} if replicas else {}),
    )
