"""Which file holds a job's plan: batches of several sizes leave one each, and find it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perseus_ds.errors import PerseusError, PlanMismatchError
from perseus_ds.plan import dumps, read_plans
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.job import Job, differences

_OF_A_SIZE = frozenset({"microbatches", "schedule"})


def needed_plan(job: Job, directory: RunDirectory) -> tuple[Path, str]:
    """Return the plan for this job's batches, file and text.

    Raises:
        PlanError: no plan can be read and fits; of several files the one for batches of this size gives the
            reason.
    """
    refusal: PerseusError = PlanMismatchError(
        f"perseus.mode is 'run' and there is no plan {directory.plan}", hint="use mode automatic once"
    )
    for file in _files(job, directory):
        try:
            return file, _fitting(file, job, directory.writers)
        except PerseusError as error:
            refusal = error
    raise refusal


def found_plan(job: Job, directory: RunDirectory) -> tuple[tuple[Path, str] | None, str]:
    """Return the plan if there is one that fits, else why not."""
    if not _files(job, directory):
        return None, f"no plan in {directory.path} yet"
    try:
        return needed_plan(job, directory), ""
    except PerseusError as error:
        return None, error.message  # its hint is to use mode automatic


def file_for(job: Job, directory: RunDirectory) -> Path:
    """Return where a new plan goes: beside the same job's plan for batches of another size, else instead."""
    beside = _is_of_another_size(job, directory)
    return directory.plan_of(job.schedule.microbatches) if beside else directory.plan


def _files(job: Job, directory: RunDirectory) -> list[Path]:
    both = directory.plan, directory.plan_of(job.schedule.microbatches)
    return [file for file in both if file.exists()]


def _fitting(file: Path, job: Job, writers: frozenset[int]) -> str:
    plans = read_plans(file, writers=writers)
    if not (wrong := differences(job.fingerprint, plans.fingerprint)):
        return dumps(plans)
    if not plans.fingerprint:
        raise PlanMismatchError(
            f"{file} was made for no job: it was planned from a table",
            hint="use mode automatic, or plan from this job's profile.json",
        )
    if _differ_in_size_alone(job.fingerprint, plans.fingerprint):
        theirs = plans.fingerprint["microbatches"]
        wrong = f"batches of {theirs} microbatches, this job's have {job.schedule.microbatches}"
        raise PlanMismatchError(f"{file} is this job's plan for {wrong}", hint="use mode automatic")
    raise PlanMismatchError(f"{file} was made for another job: {wrong}", hint="use mode automatic")


def _is_of_another_size(job: Job, directory: RunDirectory) -> bool:
    """Whether the plan is this job's but for the size of its batches."""
    if not directory.plan.exists():
        return False
    try:
        theirs = read_plans(directory.plan, writers=directory.writers).fingerprint
    except PerseusError:
        return False
    return _differ_in_size_alone(job.fingerprint, theirs)


def _differ_in_size_alone(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    same = {key: value for key, value in ours.items() if key not in _OF_A_SIZE}
    return not differences(same, theirs) and theirs.get("microbatches") != ours["microbatches"]
