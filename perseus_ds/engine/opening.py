"""How a job opens: with a plan that fits, with a profile that fits, or with nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perseus_ds.config import PerseusConfig
from perseus_ds.engine.job import Job, differences
from perseus_ds.errors import PerseusError, PlanMismatchError
from perseus_ds.plan import dumps, read_plans
from perseus_ds.profile import read_profile
from perseus_ds.run_directory import RunDirectory


class Move(Enum):
    """The first thing to do after warm-up."""

    RUN = "run"
    PLAN = "plan"
    PROFILE = "profile"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class Opening:
    """Rank 0's decision, with its reason; ``plan`` is the text of the plan file for everyone."""

    move: Move
    reason: str
    plan: str | None = None


def decide(
    config: PerseusConfig, job: Job, directory: RunDirectory, *, can_lock: bool, why_not: str
) -> Opening:
    """Choose on rank 0 from the mode, what lies in the run directory, and what the device allows.

    Raises:
        PlanError: ``mode: run`` and the plan is missing, unreadable or made for another job.
    """
    if config.mode == "observe" or not can_lock:
        reason = "mode is observe" if config.mode == "observe" else f"no clock can be set: {why_not}"
        plan, _ = _plan(job, directory)
        return Opening(Move.OBSERVE, reason, plan)
    if config.mode == "profile":
        return Opening(Move.PROFILE, "mode is profile")
    if config.mode == "run":
        return Opening(Move.RUN, f"the plan {directory.plan} fits this job", _needed_plan(job, directory))
    plan, why = _plan(job, directory)
    if plan is not None:
        return Opening(Move.RUN, f"the plan {directory.plan} fits this job", plan)
    if config.profile.reuse and _profile_fits(job, directory):
        return Opening(Move.PLAN, f"the profile {directory.profile} fits this job; {why}")
    return Opening(Move.PROFILE, why)


def _needed_plan(job: Job, directory: RunDirectory) -> str:
    if not directory.plan.exists():
        raise PlanMismatchError(
            f"perseus.mode is 'run' and there is no plan {directory.plan}",
            hint="use mode auto once",
        )
    plans = read_plans(directory.plan)
    if wrong := differences(job.fingerprint, plans.fingerprint):
        raise PlanMismatchError(f"{directory.plan} was made for another job: {wrong}", hint="use mode auto")
    return dumps(plans)


def _plan(job: Job, directory: RunDirectory) -> tuple[str | None, str]:
    """The plan if there is one that fits, else why not."""
    if not directory.plan.exists():
        return None, f"no plan in {directory.path}"
    try:
        return _needed_plan(job, directory), ""
    except PerseusError as error:
        return None, str(error)


def _profile_fits(job: Job, directory: RunDirectory) -> bool:
    if not directory.profile.exists():
        return False
    try:
        profile = read_profile(directory.profile)
    except PerseusError:
        return False
    return not differences(job.profile_fingerprint, profile.fingerprint)
