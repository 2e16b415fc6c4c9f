"""Whether a job is paced by loads on its own accord: by what is expected of it, and by what audits show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast

from perseus_ds.config.settings import StragglerSettings
from perseus_ds.plan import Expected, FrequencyPlan
from perseus_ds.profile import LoadFit
from perseus_ds.profile.record import Computation
from perseus_ds.run_directory import Summary
from perseus_ds.runtime.lifecycle.auditing import ABSOLUTE
from perseus_ds.runtime.lifecycle.findings import with_error
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.planning.plan_requests import follows, may_follow

_Told = tuple[int, int, bool]  # replica, pipeline rank, whether it knows loads

LEAST_EXPLAINED = 0.5
"""Share of how durations vary that loads have to explain, in the mean of all computations."""


@dataclass(frozen=True, slots=True)
class PacingChoice:
    """Whether iterations follow their loads, and the line that states why; empty where it is no question.

    ``without`` is what is expected if they do not.
    """

    on: bool
    line: str = ""
    without: Expected | None = None


def chosen_for(
    context: JobContext,
    plan: FrequencyPlan,
    fits: Mapping[Computation, LoadFit],
    *,
    loads_known: bool,
    named: str,
) -> PacingChoice:
    """Choose as the block asks for; collective where it leaves it to us and durations follow loads.

    ``fits`` are of durations by loads; ``loads_known``: this rank knows loads before an iteration begins.
    """
    job, settings = context.job, context.config.straggler
    if not may_follow(settings) or not fits:
        return PacingChoice(on=follows(settings))
    told = cast("list[_Told]", context.channel.gather((job.replica, job.pipeline_rank, loads_known)))
    unknown = sorted({replica for replica, pipeline_rank, knows in told if pipeline_rank == 0 and not knows})
    alike = plan.of.fingerprint.get("replicas") == str(job.replicas)
    choice = choice_of(
        plan,
        explained=fmean(fit.r2 for fit in fits.values()),
        unknown=unknown,
        settings=settings,
        why_not=_why_not(context.config.objective.policy, alike=alike),
    )
    context.log.event("pacing_choice", f"{named}{choice.line}", on=choice.on, plan=plan.index)
    return choice


def _why_not(policy: str, *, alike: bool) -> str:
    if policy in ABSOLUTE:
        return f"the objective {policy} has a limit of its own"
    return "" if alike else "the plan was made for another number of replicas"


def choice_of(
    plan: FrequencyPlan,
    *,
    explained: float,
    unknown: Sequence[int],
    settings: StragglerSettings,
    why_not: str = "",
) -> PacingChoice:
    """Choose by what is expected of a plan; pure, and so alike on all ranks.

    ``explained`` is the share of how durations vary that loads explain, ``unknown`` the replicas that do not
    know loads before an iteration begins. ``why_not`` is a reason against it that is known already.
    """
    without, paced = plan.of.expected.get(plan.index), plan.of.by_loads.get(plan.index)
    why_not = why_not or _too_little_known(explained, unknown)
    if why_not or without is None or paced is None:
        return _off(why_not or "what it would save could not be worked out from this profile and plan")
    gain_pct, slower_pct = paced.saving_pct - without.saving_pct, paced.slowdown_pct - without.slowdown_pct
    within_pct = math.hypot(paced.within_pct, without.within_pct)
    figures = (
        f"{with_error(gain_pct, within_pct, decimals=1, signed=True)} energy saved at {slower_pct:+.2f} % of "
        f"time expected of it; loads explain {100.0 * explained:.0f} % of how durations vary"
    )
    if gain_pct <= within_pct:
        return _off(f"{figures}; the saving is within its error")
    if slower_pct > settings.max_cost_pct:
        return _off(f"{figures}; straggler.max_cost_pct allows {settings.max_cost_pct:g} %")
    return PacingChoice(on=True, line=f"paced by loads: {figures}", without=without)


def _too_little_known(explained: float, unknown: Sequence[int]) -> str:
    if unknown:
        return (
            "the loads of an iteration are not known before it begins (replica "
            f"{', '.join(map(str, unknown))}); straggler.set_load or straggler.read_ahead can change that"
        )
    if explained < LEAST_EXPLAINED:
        return f"loads explain {100.0 * explained:.0f} % of how durations vary, less than half"
    return ""


def ended(context: JobContext, choice: PacingChoice, summary: Summary | None, *, named: str) -> bool:
    """Whether an audit ends pacing that the job turned on itself; collective there.

    ``summary`` is what audits have measured, on rank 0.
    """
    without = choice.without
    if without is None:
        return False
    most_slower_pct = context.config.straggler.max_cost_pct
    why: str = context.channel.broadcast_result(
        lambda: "" if summary is None else why_ended(summary, without, most_slower_pct=most_slower_pct)
    )
    if why:
        context.log.event("paced_no_more", f"{named}not paced by loads any more: {why}")
    return bool(why)


def why_ended(summary: Summary, without: Expected, *, most_slower_pct: float) -> str:
    """Return why a job is paced no more: slower, or saving less, beyond errors; empty where it goes on."""
    slow_within, save_within = summary.slowdown_within_pct, summary.saving_within_pct
    if slow_within is None or save_within is None:
        return ""
    least_pct = max(0.0, without.slowdown_pct)
    if summary.slowdown_pct - slow_within > least_pct + most_slower_pct:
        slower = with_error(summary.slowdown_pct, slow_within, signed=True)
        return f"iteration time {slower} measured, {least_pct:+.2f} % expected without"
    if summary.saving_pct + save_within < without.saving_pct - without.within_pct:
        saved = with_error(summary.saving_pct, save_within, decimals=1)
        expected = with_error(without.saving_pct, without.within_pct, decimals=1)
        return f"{saved} energy saved as measured, {expected} expected without"
    return ""


def _off(why: str) -> PacingChoice:
    return PacingChoice(on=False, line=f"not paced by loads: {why}")
