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
from perseus_ds.plan import FrequencyPlan, PlanRequest, loads, select
from perseus_ds.profile import Sweep, candidate_clocks, read_profile, write_profile
from perseus_ds.run_directory import Summary


class Course:
    """The present phase, and what is needed to reach the next one.

    Blocking exchanges happen here alone: once per profiled clock, once when the plan arrives, once per audit.
    """

    def __init__(self, ground: Ground, opening: Opening) -> None:
        self._ground = ground
        self._planner: BackgroundPlanner | None = None
        self._windows: list[Pooled] = []
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
                assert opening.plan is not None
                return self._run(opening.plan)
            case Move.PLAN:
                return self._planning()
            case Move.PROFILE:
                return self._profiling(iteration_s)
            case Move.OBSERVE:
                return self._observing(opening, iteration_s)

    def _observing(self, opening: Opening, iteration_s: float) -> Phase:
        """Measure one window at default clocks, say what it shows and what a plan would save."""
        ground = self._ground
        if opening.plan is not None:
            plan = select(loads(opening.plan), ground.config.objective)
            ground.voice.event(
                "predicted",
                f"observing only; the plan would save {plan.saving_pct:.1f} % energy",
                saving_pct=plan.saving_pct,
            )
        if not ground.watch.watching:
            return Rest()
        sweep = Sweep(ground.capabilities.clocks_mhz[:1])

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> None:
            seen = pooled(self._ground, clock_mhz, window)
            sweep.record(seen.points, blocking_power_w=seen.blocking_power_w)
            self._tell_observed(seen)

        return Profiling(
            sweep,
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
        settings = self._ground.config.profile
        sweep = Sweep(candidate_clocks(self._ground.capabilities.clocks_mhz, settings.max_clocks))
        iterations = self._window_iterations(iteration_s)
        self._ground.voice.event(
            "profiling",
            f"profiling {len(sweep.clocks_mhz)} clocks, {iterations} iterations of "
            f"{iteration_s:.3g} s at each",
            clock_mhz=sweep.clock_mhz,
            done=0,
            total=len(sweep.clocks_mhz),
        )

        def measured(clock_mhz: int, window: Sequence[Iteration]) -> None:
            seen = pooled(self._ground, clock_mhz, window)
            self._windows.append(seen)
            sweep.record(seen.points, blocking_power_w=seen.blocking_power_w)
            self._ground.voice.event(
                "profiling",
                f"profiled {clock_mhz} MHz ({sweep.done} of at most {len(sweep.clocks_mhz)})",
                clock_mhz=clock_mhz,
                done=sweep.done,
                total=len(sweep.clocks_mhz),
            )

        return Profiling(sweep, iterations, measured=measured, then=lambda: self._profiled(sweep))

    def _profiled(self, sweep: Sweep) -> Phase:
        ground = self._ground
        profile = profile_of(ground, sweep, self._windows)
        if ground.job.rank == 0:
            write_profile(profile, ground.directory.profile)
        where = f"wrote {ground.directory.profile}"
        if ground.config.mode == "profile":
            ground.voice.event("profiled", f"{where}; mode is profile: default clocks from here on")
            return Rest()
        ground.voice.event("profiled", where)
        return self._planning()

    def _planning(self) -> Phase:
        """Plan from the profile in the run directory, which rank 0 alone needs to see."""
        ground = self._ground
        if ground.job.rank == 0:
            profile = read_profile(ground.directory.profile)
            assert profile.blocking_power_w is not None
            request = PlanRequest(
                ground.job.schedule,
                fingerprint=ground.job.fingerprint,
                blocking_power_w=profile.blocking_power_w,
                reserve_pct=ground.config.objective.reserve_pct,
            )
            self._planner = BackgroundPlanner(ground.directory, request)
        ground.voice.event("planning", "planning beside the training")
        return Planning(self._planned)

    def _planned(self) -> Phase:
        ground = self._ground
        text = ground.directory.plan.read_text() if ground.job.rank == 0 else None
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        return self._run(cast("str", ground.council.tell(text)))

    def _run(self, text: str) -> Phase:
        ground, audit = self._ground, self._ground.config.audit
        plans = loads(text)
        plan = select(plans, ground.config.objective)
        ground.voice.event(
            "running",
            f"running plan {plan.index} of {len(plans)}: {plan.iteration_time_s:.4g} s "
            f"({round(plan.slowdown_pct, 2) + 0.0:+.2f} %), {plan.saving_pct:.1f} % energy saved as planned, "
            f"within {float(plans.gap_pct[plan.index]):.3f} % of the certified bound",
            plan=plan.index,
            iteration_time_s=plan.iteration_time_s,
            predicted_saving_pct=plan.saving_pct,
            gap_pct=float(plans.gap_pct[plan.index]),
            solve_time_s=plans.solve_time_s,
        )
        self._part = part_of(ground, plans, plan)
        return Running(
            self._part,
            every_iterations=audit.every_iterations,
            audit_iterations=audit.iterations,
            audited=lambda: self._audited(plan),
        )

    def _audited(self, plan: FrequencyPlan) -> None:
        self._summary = audited(self._ground, plan) or self._summary
