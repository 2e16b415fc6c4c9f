"""How a job opens: with a plan that fits, with a profile that fits, or with nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from perseus_ds.config import PerseusConfig
from perseus_ds.errors import PerseusError
from perseus_ds.profile import read_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.lifecycle.planning.plan_files import found_plans, needed_plans


class StartAction(Enum):
    """The first thing to do after warm-up."""

    RUN = "run"
    PLAN = "plan"
    PROFILE = "profile"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Rank 0's decision, with its reason; ``plans`` are the texts of the plan files for everyone.

    Shape: ``plans`` [groups], empty where they are not all there.
    """

    action: StartAction
    reason: str
    plans: tuple[str, ...] = ()


def decide(
    config: PerseusConfig, job: Job, directory: RunDirectory, *, can_lock: bool, why_not: str
) -> StartDecision:
    """Choose on rank 0 from the mode, what lies in the run directory, and what the device allows.

    Raises:
        PlanError: ``mode: run`` and the plan is missing, unreadable or made for another job.
    """
    if config.mode == "observe" or not can_lock:
        unable = f"no clock can be set, so this job saves nothing: {why_not}"
        reason = "mode is observe" if config.mode == "observe" else unable
        plans, _ = found_plans(job, directory)
        return StartDecision(StartAction.OBSERVE, reason, tuple(plans.values()))
    if config.mode == "profile":
        return StartDecision(StartAction.PROFILE, "mode is profile")
    if config.mode == "run":
        return _running(needed_plans(job, directory))
    plans, why = found_plans(job, directory)
    if plans:
        return _running(plans)
    no_profile = [_why_no_profile(directory, job, group) for group in range(len(job.groups))]
    if config.profile.reuse and all(one is None for one in no_profile):
        return StartDecision(StartAction.PLAN, f"the profile {directory.profile} fits this job; {why}")
    refused = filter(None, no_profile) if config.profile.reuse else ()
    return StartDecision(StartAction.PROFILE, "; ".join([why, *refused]))


def _running(plans: Mapping[Path, str]) -> StartDecision:
    first = next(iter(plans))
    return StartDecision(StartAction.RUN, f"the plan {first} fits this job", tuple(plans.values()))


def _why_no_profile(directory: RunDirectory, job: Job, group: int) -> str | None:
    """Explain why a profile that is there does not serve; empty without a profile, None where it serves."""
    file = directory.profile_of(group)
    try:
        profile = read_profile(file, writers=directory.writers)
    except PerseusError as error:
        return str(error) if file.exists() else ""
    wrong = differences(job.profile_fingerprint(group), profile.fingerprint)
    return f"{file} is of another job: {wrong}" if wrong else None
