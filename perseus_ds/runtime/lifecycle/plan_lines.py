"""What the log states of the plan that a job runs, and the doubts about it."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.plan import Expected, FrequencyPlan, PlanSet, certified, doubt, too_little_reserve
from perseus_ds.runtime.lifecycle.findings import with_error
from perseus_ds.runtime.lifecycle.job_context import JobContext


class PlanLines:
    """Lines for batches of one size, which ``named`` names where there are several."""

    def __init__(self, context: JobContext, named: str) -> None:
        self._context = context
        self._named = named

    def swing(self, plan: FrequencyPlan) -> None:
        """Report by how much the plan's power changes, where the block bounds that."""
        most_w, swings_w = self._context.config.power.max_swing_w, plan.of.swings_w
        if most_w is None or swings_w is None:
            return
        swing_w = float(swings_w[plan.index])
        line = f"{self._named}power of a pipeline changes by at most {swing_w:.0f} W within a second"
        if swing_w > most_w:
            line += f": no plan stays within power.max_swing_w = {most_w:g} W, this one is the steadiest"
        else:
            line += f" (power.max_swing_w: {most_w:g} W), but for default clocks while measuring"
        self._context.log.event("power_swing", line, swing_w=swing_w, max_swing_w=most_w, plan=plan.index)

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

    def running(self, plan: FrequencyPlan, hope: Expected, replicas: Sequence[int]) -> None:
        """Report the plan that is run, and what is expected of it; ``replicas`` where not all run it."""
        plans = plan.of
        whose = f"replica {', '.join(map(str, replicas))}: " if replicas else ""
        self._context.log.event(
            "running",
            f"{self._named}{whose}running plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.4g} s "
            f"per iteration ({with_error(hope.slowdown_pct, hope.slowdown_within_pct, signed=True)} "
            f"expected), saves {with_error(hope.saving_pct, hope.within_pct, decimals=1)}, "
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
            **({"replicas": list(replicas)} if replicas else {}),
        )
