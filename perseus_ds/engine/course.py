"""From one phase to the next: what a job does between its first iteration and its last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from perseus_ds.engine.account import Mode
from perseus_ds.engine.auditing import audited
from perseus_ds.engine.conductor import Score
from perseus_ds.engine.ground import Ground
from perseus_ds.engine.measuring import pooled, profile_of
from perseus_ds.engine.monitoring import shown
from perseus_ds.engine.news import News
from perseus_ds.engine.opening import Move, Opening
from perseus_ds.engine.part import Part, part_of
from perseus_ds.engine.phases import (
    DEFAULT_CLOCK,
    Phase,
    Planning,
    Profiling,
    Rest,
    Running,
    WarmUp,
)
from perseus_ds.engine.planning import BackgroundPlanner
from perseus_ds.engine.pooling import Pooled
from perseus_ds.engine.recorder import Iteration
from perseus_ds.engine.sweeping import Sweeps, sweeps_of
from perseus_ds.plan import FrequencyPlan, PlanRequest, certified, doubt, loads, select
from perseus_ds.profile import Sweep, read_profile, write_profile
from perseus_ds.run_directory import Summary


class Course:
    """The present phase, and what is needed to reach the next one.

    Blocking exchanges happen here alone: once per profiled clock, once when the plan arrives, once per audit,
    and where replicas have different GPUs once for their clocks.
    """

    def __init__(self, ground: Ground, opening: Opening) -> None:
        self._ground = ground
        self._planner: BackgroundPlanner | None = None
        self._part: Part | None = None
        self._summary: Summary | None = None
        self._phase: Phase = WarmUp(
            ground.config.profile.warmup_iterations, lambda iteration_s: self._open(opening, iteration_s)
        )
        ground.voice.event("warming_up", iterations=ground.config.profile.warmup_iterations)

    @property
    def score(self) -> Score:
        """What the coming iteration is played by."""
        return self._phase.score

    @property
    def mode(self) -> Mode:
        """What the coming iteration counts for."""
        return self._phase.mode

    def advance(self, index: int, passed: Sequence[Iteration], news: News | None) -> None:
        """Move on after an iteration."""
        self._phase = self._phase.following(index, passed, news)

    def plan_ready(self) -> bool:
        """Whether rank 0's background planner has finished."""
        return self._planner is not None and self._planner.ready()

    @property
    def stands_alone(self) -> bool:
        """Whether the present phase can go on without the other ranks."""
        return self._phase.stands_alone

    def alone(self) -> None:
        """Go on without the other ranks."""
        self._phase.alone()

    def shown(self) -> Mapping[str, float]:
        """Return the scalars of a running plan; empty before there is one."""
        return {} if self._part is None else shown(self._part, self._ground.account, self._summary)

    def close(self) -> None:
        """End what still runs beside the training."""
        if self._planner is not None:
            self._planner.close()

    def _open(self, opening: Opening, iteration_s: float) -> Phase:
        match opening.move:
            case Move.RUN:
                return self._run(opening.plans)
            case Move.PLAN:
                return self._planning()
            case Move.PROFILE:
                return self._profiling(iteration_s)
            case Move.OBSERVE:
                return self._observing(opening, iteration_s)

    def _observing(self, opening: Opening, iteration_s: float) -> Phase:
        """Measure one window at default clocks, say what it shows and what a plan would save."""
        ground = self._ground
        for text in opening.plans:
            plan = select(loads(text), ground.config.objective)
            ground.voice.event(
                "predicted",
                f"observing only; the plan would save {plan.saving_pct:.1f} % energy",
                saving_pct=plan.saving_pct,
            )
        if not ground.watch.watching:
            return Rest()
        top = ground.capabilities.clocks_mhz[:1]
        sweeps = Sweeps([Sweep(top) for _ in ground.job.teams], mine=ground.job.team)

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> None:
            seen = pooled(ground, clock_mhz, window)
            sweeps.record(seen)
            for team in seen:
                self._tell_observed(team)

        return Profiling(
            sweeps,
            self._window_iterations(iteration_s),
            measured=measured,
            then=Rest,
            score_at=lambda _: DEFAULT_CLOCK,
        )

    def _tell_observed(self, seen: Pooled) -> None:
        rows = [
            {"computation": f"{stage}{kind.value}", "time_s": point.time_s, "energy_j": point.energy_j}
            | {"energy_se_j": point.energy_se_j, "clock_mhz": point.achieved_mhz}
            for (stage, kind), point in seen.points.items()
        ]
        energy_j = sum(point.energy_j for point in seen.points.values())
        self._ground.voice.event(
            "observed",
            f"observed at default clocks: {energy_j:.4g} J in one microbatch's computations, "
            f"{seen.blocking_power_w:.4g} W while waiting",
            blocking_power_w=seen.blocking_power_w,
            computations=rows,
        )

    def _window_iterations(self, iteration_s: float) -> int:
        return max(2, -int(-self._ground.config.profile.min_window_s // iteration_s))

    def _profiling(self, iteration_s: float) -> Phase:
        sweeps = sweeps_of(self._ground)
        iterations = self._window_iterations(iteration_s)
        self._ground.voice.event(
            "profiling",
            f"profiling {sweeps.total} clocks, {iterations} iterations of {iteration_s:.3g} s at each",
            clock_mhz=sweeps.clock_mhz,
            done=0,
            total=sweeps.total,
        )

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> None:
            sweeps.record(pooled(self._ground, clock_mhz, window))
            self._ground.voice.event(
                "profiling",
                f"profiled {clock_mhz} MHz ({sweeps.done} of at most {sweeps.total})",
                clock_mhz=clock_mhz,
                done=sweeps.done,
                total=sweeps.total,
            )

        return Profiling(sweeps, iterations, measured=measured, then=lambda: self._profiled(sweeps))

    def _profiled(self, sweeps: Sweeps) -> Phase:
        ground = self._ground
        files = [ground.directory.profile_of(team) for team in range(len(ground.job.teams))]
        for team, (sweep, windows) in enumerate(zip(sweeps.sweeps, sweeps.windows, strict=True)):
            profile = profile_of(ground, sweep, windows, team=team)
            if ground.job.rank == 0:
                write_profile(profile, files[team])
        where = f"wrote {', '.join(map(str, files))}"
        if ground.config.mode == "profile":
            ground.voice.event("profiled", f"{where}; mode is profile: default clocks from here on")
            return Rest()
        ground.voice.event("profiled", where)
        return self._planning()

    def _planning(self) -> Phase:
        """Plan from the profiles in the run directory, which rank 0 alone needs to see."""
        ground = self._ground
        if ground.job.rank == 0:
            requests = [self._request(team) for team in range(len(ground.job.teams))]
            self._planner = BackgroundPlanner(ground.directory, requests)
        ground.voice.event("planning", "planning beside the training")
        return Planning(self._planned)

    def _request(self, team: int) -> PlanRequest:
        ground = self._ground
        profile = read_profile(ground.directory.profile_of(team))
        assert profile.blocking_power_w is not None
        return PlanRequest(
            ground.job.schedule,
            fingerprint=ground.job.plan_fingerprint(team),
            blocking_power_w=profile.blocking_power_w,
            reserve_pct=ground.config.objective.reserve_pct,
        )

    def _planned(self) -> Phase:
        ground, texts = self._ground, None
        if ground.job.rank == 0:
            texts = [ground.directory.plan_of(team).read_text() for team in range(len(ground.job.teams))]
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        return self._run(cast("list[str]", ground.council.tell(texts)))

    def _run(self, texts: Sequence[str]) -> Phase:
        """Play the own team's plans; what is audited is held against those of the first."""
        ground, audit = self._ground, self._ground.config.audit
        frontiers = [loads(text) for text in texts]
        objectives = [select(plans, ground.config.objective) for plans in frontiers]
        for team, plan in enumerate(objectives):
            self._tell_running(plan, ground.job.teams[team].replicas if ground.job.mixed else ())
        for plans in frontiers:
            if doubtful := doubt(plans):
                ground.voice.event("doubtful", doubtful)
        self._part = part_of(ground, frontiers, objectives[ground.job.team])
        return Running(
            self._part,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=lambda: self._audited(objectives[0]),
        )

    def _tell_running(self, plan: FrequencyPlan, replicas: Sequence[int]) -> None:
        plans = plan.of
        whose = f"replica {', '.join(map(str, replicas))}: " if replicas else ""
        self._ground.voice.event(
            "running",
            f"{whose}running plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.4g} s "
            f"({round(plan.slowdown_pct, 2) + 0.0:+.2f} %), {plan.saving_pct:.1f} % energy saved as planned, "
            f"{certified(float(plans.gap_pct[plan.index]))}",
            plan=plan.index,
            iteration_time_s=plan.iteration_time_s,
            predicted_saving_pct=plan.saving_pct,
            gap_pct=float(plans.gap_pct[plan.index]),
            solve_time_s=plans.solve_time_s,
            **({"replicas": list(replicas)} if replicas else {}),
        )

    def _audited(self, plan: FrequencyPlan) -> None:
        self._summary = audited(self._ground, plan) or self._summary
