"""What this stage plays while the plan runs: its part of the plan that its replica is to play."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.runtime.comm.status import News
from perseus_ds.runtime.control.clock_schedules import Repertoire
from perseus_ds.runtime.control.clock_sequencer import Planned
from perseus_ds.runtime.control.replica_plans import Vigilance
from perseus_ds.runtime.lifecycle.job_context import Ground
from perseus_ds.runtime.observe.straggler_reporter import Herald
from perseus_ds.straggler import Cause, Menu


class Part:
    """The objective's plan, and with several replicas whatever the vigil decides.

    ``behind`` is how many iterations the numbers that are heard are older than the exchange itself.
    """

    def __init__(
        self,
        repertoire: Repertoire,
        objective: FrequencyPlan,
        *,
        replica: int = 0,
        vigilance: Vigilance | None = None,
        herald: Herald | None = None,
        behind: int = 0,
    ) -> None:
        self._repertoire = repertoire
        self._objective = objective.index
        self._objective_s = objective.iteration_time_s
        self._replica = replica
        self._vigilance = vigilance
        self._herald = herald
        self._behind = behind

    @property
    def plan(self) -> int:
        """The plan that this replica plays now."""
        return self._objective if self._vigilance is None else self._vigilance.plans[self._replica]

    @property
    def plans(self) -> Sequence[int]:
        """The plans that all replicas play now."""
        return [self._objective] if self._vigilance is None else self._vigilance.plans

    @property
    def score(self) -> Planned:
        """This stage's part of it.

        Cost: a look-up, but for the first time that a plan is played.
        """
        return self._repertoire.score(self.plan)

    @property
    def meeting_s(self) -> float | None:
        """The iteration time at which all replicas meet; None while nobody waits."""
        return None if self._vigilance is None else self._vigilance.meeting_s

    @property
    def awaited_s(self) -> float:
        """How long an iteration has to be: as the objective's plan predicts, or as the straggler needs."""
        return self._objective_s if self.meeting_s is None else self.meeting_s

    @property
    def slack_s(self) -> float:
        """How much of that this replica would wait if it played the objective's plan."""
        return max(0.0, self.awaited_s - self._objective_s)

    @property
    def waits(self) -> bool:
        """Whether some replica waits for one that could be faster; one with slower GPUs is as it is."""
        if self._vigilance is None or self._vigilance.verdict is None or self.meeting_s is None:
            return False
        return any(one.cause is not Cause.STRUCTURAL for one in self._vigilance.verdict.stragglers)

    def hear(self, index: int, news: News) -> bool:
        """Take in what was exchanged while iteration ``index`` ran; return whether plans change."""
        if self._vigilance is None or news.replicas is None:
            return False
        changed = self._vigilance.hear(index - 1 - self._behind, news.replicas)
        if self._herald is not None and self._vigilance.verdict is not None:
            self._herald.tell(self._vigilance.verdict, self._vigilance.plans)
        return changed

    def will_play(self, index: int) -> None:
        """Note that iteration ``index`` is played by the plan."""
        if self._vigilance is not None:
            self._vigilance.will_play(index)

    def alone(self) -> None:
        """Play the objective's plan from now on, whatever the others do."""
        self._vigilance = None


def part_of(ground: Ground, frontiers: Sequence[PlanSet], objective: FrequencyPlan) -> Part:
    """Prepare this stage's part of every plan, and the watch over replicas where there are several.

    Shape: ``frontiers`` [teams]; ``objective`` is a plan of this rank's.
    """
    job, config = ground.job, ground.config
    plans = frontiers[job.team]
    ground.arrivals.expect(plans.fixed_s)
    repertoire = Repertoire(plans, stage=job.stage, lead_s=ground.capabilities.switch_latency_s)
    if job.replicas == 1 or not config.straggler.enabled:
        return Part(repertoire, objective)
    menus = [Menu.of(one, config.objective) for one in frontiers]
    teams = [job.team_of(replica) for replica in range(job.replicas)]
    return Part(
        repertoire,
        objective,
        replica=job.replica,
        vigilance=Vigilance([menus[team] for team in teams]),
        herald=Herald(ground.voice, [frontiers[team] for team in teams]),
        behind=ground.arrivals.behind,
    )
