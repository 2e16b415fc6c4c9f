"""What is watched for drift while plans run, on every rank, and the one answer of all ranks to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from perseus_ds.plan import FrequencyPlan
from perseus_ds.profile import LoadFit
from perseus_ds.profile.drift.verdict import DriftVerdict, RankLevels, judge
from perseus_ds.profile.record import Computation
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.measure.stage_levels import Promise, StageLevels
from perseus_ds.runtime.observe.rank_report import RankBooks
from perseus_ds.schedule import Instruction, Load

Fits = Mapping[Computation, LoadFit]


class DriftWatch:
    """The levels of this rank at the plan of every size of batches, and the plans that they belong to.

    ``plans`` are those of all groups, by size.
    """

    def __init__(self, context: JobContext, books: RankBooks, levels: Callable[[], StageLevels]) -> None:
        self._context = context
        self._books = books
        self._levels = levels
        self.plans: dict[int, Sequence[FrequencyPlan]] = {}

    def over(
        self, job: Job, plans: Sequence[FrequencyPlan], fits: Fits, *, by_loads: bool
    ) -> StageLevels | None:
        """Watch batches of one size at their plan from now on; None where that shows nothing.

        ``by_loads``: iterations follow their loads.

        Shape: ``plans`` [groups].
        """
        size = job.schedule.microbatches
        self._books.levels.pop(size, None)
        if why := self._why_not(job, by_loads=by_loads):
            self._context.log.event("drift_not_watched", reason=why, microbatches=size)
            return None
        self.plans[size] = plans
        levels = self._books.levels[size] = self._levels()
        levels.expect(promise_of(plans[job.group], job.pipeline_rank, fits))
        return levels

    def drifted(self, microbatches: int) -> bool:
        """Whether this rank has left its levels, in batches of a size."""
        levels = self._books.levels.get(microbatches)
        return levels is not None and levels.drifted

    def judged(self, job: Job) -> DriftVerdict:
        """Judge what all ranks report; collective. Levels are learned anew from here on."""
        levels = self._books.levels.get(job.schedule.microbatches)
        mine = None if levels is None else levels.report(job)
        told = cast("list[RankLevels | None]", self._context.channel.gather(mine))
        if levels is not None:
            levels.forget()
        return judge([one for one in told if one is not None])

    def _why_not(self, job: Job, *, by_loads: bool) -> str:
        config = self._context.config
        if config.profile.drift == "never":
            return "profile.drift is never"
        if job.peer_groups or job.coupled:
            return "ranks meet within computations: how long these last is the others' doing as well"
        if by_loads:
            return "every iteration has clocks of its own"
        return ""


def promise_of(plan: FrequencyPlan, pipeline_rank: int, fits: Fits) -> Promise:
    """What a plan has every computation of a rank take, and how that follows the loads."""
    plans = plan.of
    planned: dict[Instruction, tuple[float, float]] = {}
    for column, one in plans.computations_of(pipeline_rank):
        options = plans.options[one.stage, one.kind]
        time_s, energy_j = (
            float(plans.blended(column, values)[plan.index]) for values in (options.time_s, options.energy_j)
        )
        planned[one] = time_s, energy_j

    def factor(one: Instruction, load: Load) -> float:
        fit = fits.get((one.stage, one.kind))
        return 1.0 if fit is None else fit.factor(load)

    return Promise(plan.index, planned, plans.blocking_power_w, factor)
