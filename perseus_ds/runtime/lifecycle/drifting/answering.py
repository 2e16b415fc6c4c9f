"""The answer to a drift: it is reported, what moved is measured again in place, and planned anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from perseus_ds.errors import PerseusError
from perseus_ds.plan import write_request
from perseus_ds.profile import Computation, Point, Profile, smoothed, write_profile
from perseus_ds.profile.drift.cusum import LEARNING
from perseus_ds.profile.drift.renewal import Ratio, renewed
from perseus_ds.profile.drift.verdict import DriftVerdict
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.drifting.again import Again, clocks_again
from perseus_ds.runtime.lifecycle.drifting.watching import DriftWatch
from perseus_ds.runtime.lifecycle.job_context import JobContext, profile_in
from perseus_ds.runtime.lifecycle.measuring.sweeping import Sweeping
from perseus_ds.runtime.lifecycle.phases import Phase
from perseus_ds.runtime.lifecycle.planning.plan_requests import plan_request

_QUIET = 100
_MOST_DOUBLED = 6

Ratios = Mapping[Computation, Ratio]


class DriftAnswers:
    """Answers one drift at a time, each at an iteration that all ranks know alike.

    After the n-th measurement the next comes ``_QUIET`` * 2^n iterations later at the earliest: what goes on
    changing costs less and less.
    """

    def __init__(self, context: JobContext, watch: DriftWatch, sweeping: Sweeping) -> None:
        self._context = context
        self._watch = watch
        self._sweeping = sweeping
        self._measured = 0
        self._not_before = 0
        self.under_way = False

    def drifted(self, microbatches: int) -> bool:
        """Whether this rank has something to report, in batches of a size."""
        return not self.under_way and self._watch.drifted(microbatches)

    def begin_anew(self) -> None:
        """Forget what was under way, and when: ranks that parted may not agree on it."""
        self.under_way, self._measured, self._not_before = False, 0, 0

    def answer(
        self, job: Job, index: int, iteration_s: float, *, then: Callable[[bool], Phase]
    ) -> Phase | None:
        """Judge what ranks report; return what measures it again, None where the plan runs on. Collective.

        ``then`` gets whether the profile has been renewed, and returns what comes after.
        """
        if self.under_way or index < self._not_before:
            return None
        verdict = self._watch.judged(job)
        self._not_before = index + LEARNING  # what ranks reported before that is of levels that are forgotten
        if not verdict.moved:
            self._context.log.event("no_drift", stragglers=verdict.slow_replicas)
            return None
        why_not = self._why_not(job)
        self._log_drift(verdict, why_not)
        if why_not:
            return None
        self.under_way = True
        again = self._again(job, verdict)
        self._context.log.event(
            "profiling",
            f"measuring {verdict.where} again at {again.total} clocks; all others run at default clocks",
            done=0,
            total=again.total,
        )

        def measured() -> Phase:
            self.under_way = False
            self._measured += 1
            self._not_before = index + (_QUIET << min(self._measured, _MOST_DOUBLED))
            return then(self._write(job, again))

        return self._sweeping.measuring_again(again, iteration_s, then=measured)

    def _why_not(self, job: Job) -> str:
        """Return why nothing is measured again; alike on all ranks."""
        config = self._context.config
        if config.profile.drift == "report":
            return 'profile.drift "automatic" would measure it again'
        if config.mode == "run":
            return "mode is run: remove the profile and the plan, and run once in mode automatic"
        if config.objective.timelines is not None:
            return "the timelines that were given are as old: measure the kernels again"
        there = self._context.channel.broadcast_result(
            lambda: all(profile_in(self._context, group) is not None for group in range(len(job.groups)))
        )
        return (
            "" if there else "the run directory has no profile of this job: remove the plan, and it makes one"
        )

    def _log_drift(self, verdict: DriftVerdict, why_not: str) -> None:
        self._context.log.event(
            "drift",
            f"{verdict.line}; {why_not or 'measured again, and planned anew'}",
            everywhere=verdict.everywhere,
            cause=verdict.cause,
            moved={str(rank): asdict(one) for rank, one in verdict.moved.items()},
            measured_again=not why_not,
        )

    def _again(self, job: Job, verdict: DriftVerdict) -> Again:
        clocks, computations = {}, {}
        for group, plan in enumerate(self._watch.plans[job.schedule.microbatches]):
            for rank in verdict.moved:
                clocks[group, rank] = clocks_again(plan, rank)
                own = {(one.stage, one.kind) for _, one in plan.of.computations_of(rank)}
                computations[group, rank] = sorted(own, key=lambda key: (key[0], key[1].value))
        return Again(clocks, computations, mine=(job.group, job.pipeline_rank))

    def _write(self, job: Job, again: Again) -> bool:
        """Renew every group's profile, on rank 0; return whether anything is new. Collective."""
        if again.failed:
            self._context.log.event(
                "drift_not_measured",
                f"the plan runs on with the profile that it was made from: {again.failed}",
            )
            return False
        ratios: Ratios = self._context.channel.broadcast_result(lambda: self._renew(job, again))
        sure = any(one.certain for one in ratios.values())
        told = [
            f"stage {stage}{kind.value} {100.0 * (one.time - 1.0):+.1f} % time and "
            f"{100.0 * (one.energy - 1.0):+.1f} % energy"
            for (stage, kind), one in ratios.items()
        ]
        words = "planning anew" if sure else "that is within the errors: the plan runs on"
        self._context.log.event("drift_measured", f"measured again: {'; '.join(told)}; {words}", renewed=sure)
        return sure

    def _renew(self, job: Job, again: Again) -> Ratios:
        """Write what was measured again into the profiles, where it differs by more than chance.

        Plans of the old profiles are removed: a job that ends before there are new ones must not find them.
        """
        found: dict[Computation, Ratio] = {}
        profiles: list[Profile] = []
        for group, points in enumerate(again.points):
            known = profile_in(self._context, group)
            if known is None:
                raise PerseusError(f"{self._context.directory.profile_of(group)} is gone")
            if not points:
                profiles.append(known)
                continue
            measured = self._at_profiles_heat(known, points, again, group)
            new, ratios = renewed(known, measured, predicted=smoothed(known))
            profiles.append(new)
            found |= ratios
        if any(one.certain for one in found.values()):
            for group, new in enumerate(profiles):
                write_profile(new, self._context.directory.profile_of(group))
                for size in (None, *self._watch.plans):
                    self._context.directory.plan_of(group, size).unlink(missing_ok=True)
                request = plan_request(self._context, job, group)
                write_request(self._context.directory.request_of(group), request)
        return found

    def _at_profiles_heat(
        self, known: Profile, points: Mapping[Computation, Sequence[Point]], again: Again, group: int
    ) -> dict[Computation, list[Point]]:
        """As if the GPU had been as warm throughout as in the first window, at default clocks."""
        heats_w = [window[group].heat_w for window in again.windows]
        return {
            key: [
                replace(one, energy_j=one.energy_j + known.leakage * (heats_w[0] - heat_w) * one.time_s)
                for one, heat_w in zip(several, heats_w, strict=False)
            ]
            for key, several in points.items()
        }
