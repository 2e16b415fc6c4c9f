"""Whether what was asked for in absolute terms is kept, by what was measured; and what would keep it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perseus_ds.config import Objective
from perseus_ds.errors import InfeasibleError
from perseus_ds.plan import FrequencyPlan, select
from perseus_ds.run_directory import MeasuredSide, Summary

_SE = 2.0  # standard errors on either side hold the true value 95 times in 100


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit, and what was measured against it with half of its 95 % interval, as planned beside it."""

    name: str
    unit: str
    limit: float
    planned: float
    measured: float
    within: float

    @property
    def missed(self) -> bool:
        """Whether the limit is exceeded, beyond chance."""
        return self.measured - self.within > self.limit

    def __str__(self) -> str:
        over_pct = 100.0 * (self.measured / self.limit - 1.0)
        return (
            f"the {self.name} of {self.limit:.4g} {self.unit} is missed by {over_pct:.1f} %: measured "
            f"{self.measured:.4g} +- {self.within:.2g} {self.unit}, planned {self.planned:.4g} {self.unit}"
        )


def bound_of(
    objective: Objective, plan: FrequencyPlan, summary: Summary, latest: MeasuredSide, *, pipelines: int
) -> Bound | None:
    """Hold what was measured against the objective's own limit; None where it has none.

    ``latest`` is what iterations took since the audit before: batches may have grown.
    """
    time_s, power_w = latest.iteration_time_s, latest.energy_j / latest.iteration_time_s / pipelines
    match objective.policy:
        case "deadline":
            assert objective.deadline_s is not None
            within_s = _SE * (latest.iteration_time_se_s or 0.0)
            return Bound("deadline", "s", objective.deadline_s, plan.iteration_time_s, time_s, within_s)
        case "max_slowdown":
            assert objective.max_slowdown_pct is not None
            times = 1.0 + objective.max_slowdown_pct / 100.0
            within = (summary.slowdown_within_pct or 0.0) / 100.0
            planned = 1.0 + plan.slowdown_pct / 100.0
            return Bound("max_slowdown", "x", times, planned, 1.0 + summary.slowdown_pct / 100.0, within)
        case "power_cap":
            assert objective.power_cap_w is not None
            within_w = power_w * _SE * (latest.energy_se_j or 0.0) / latest.energy_j
            planned_w = plan.energy_j / plan.iteration_time_s
            return Bound("power cap", "W", objective.power_cap_w, planned_w, power_w, within_w)
        case _:
            return None


def kept(bound: Bound, objective: Objective, plan: FrequencyPlan) -> tuple[str, Objective | None]:
    """Report that a bound is missed, and return the objective that picks another plan, where one is nearer.

    The ratio of measured to planned is taken to stay as it is.
    """
    allowed = bound.limit * bound.planned / (bound.measured + bound.within)
    if objective.policy == "power_cap":
        wanted, fallback = replace(objective, power_cap_w=allowed), None
        remedy = "raise objective.power_cap_w"
    else:
        deadline_s = allowed * (1.0 if bound.unit == "s" else plan.of.baseline.iteration_time_s)
        wanted, fallback = replace(objective, policy="deadline", deadline_s=deadline_s), Objective()
        key = "deadline_s" if bound.unit == "s" else "max_slowdown_pct"
        remedy = f"raise objective.{key}, or train fewer or smaller microbatches"
    try:
        better = select(plan.of, wanted)
    except InfeasibleError:
        nearest = plan if fallback is None else select(plan.of, fallback)
        line = f"{bound}; no plan keeps it: {remedy}"
        return line, None if nearest.index == plan.index else fallback
    if better.index == plan.index:
        return f"{bound}; no plan is nearer to it: {remedy}", None
    return f"{bound}; plan {better.index} of {len(plan.of)} is to keep it from here on", wanted
