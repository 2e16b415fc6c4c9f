"""How a job opens: with a plan that fits, with a profile that fits, or with nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from perseus_ds.config import PerseusConfig
from perseus_ds.errors import PerseusError
from perseus_ds.profile import read_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.job import Job, differences
from perseus_ds.runtime.lifecycle.planning.plan_files import found_plan, needed_plan


class StartAction(Enum):
    """The first thing to do after warm-up."""

    RUN = "run"
    PLAN = "plan"
    PROFILE = "profile"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class StartDecision:
    """Rank 0's decision, with its reason; ``plans`` is the text of the plan file for everyone, if any."""

    action: StartAction
    reason: str
    plans: str = ""


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
        found, _ = found_plan(job, directory)
        return StartDecision(StartAction.OBSERVE, reason, "" if found is None else found[1])
    if config.mode == "profile":
        return StartDecision(StartAction.PROFILE, "mode is profile")
    if config.mode == "run":
        return _running(*needed_plan(job, directory))
    found, why = found_plan(job, directory)
    if found is not None:
        return _running(*found)
    no_profile = _why_no_profile(directory, job) if config.profile.reuse else ""
    if no_profile is None:
        return StartDecision(StartAction.PLAN, f"the profile {directory.profile} fits this job; {why}")
    return StartDecision(StartAction.PROFILE, "; ".join(filter(None, [why, no_profile])))


def _running(file: Path, text: str) -> StartDecision:
    return StartDecision(StartAction.RUN, f"the plan {file} fits this job", text)


def _why_no_profile(directory: RunDirectory, job: Job) -> str | None:
    """Explain why a profile that is there does not serve; empty without a profile, None where it serves."""
    file = directory.profile
    try:
        profile = read_profile(file, writers=directory.writers)
    except PerseusError as error:
        return str(error) if file.exists() else ""
    wrong = differences(job.profile_fingerprint, profile.fingerprint)
    return f"{file} is of another job: {wrong}" if wrong else None
