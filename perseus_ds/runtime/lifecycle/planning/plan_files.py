"""Which file holds a job's plan: batches of several sizes leave one each, and find it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perseus_ds.errors import PerseusError, PlanMismatchError
from perseus_ds.plan import dumps, read_plans
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.job import Job, differences

_OF_A_SIZE = frozenset({"microbatches", "schedule"})


def needed_plans(job: Job, directory: RunDirectory) -> dict[Path, str]:
    """Return the plans for this job's batches, file and text, one for each group in their order.

    Raises:
        PlanError: a group has no plan that can be read and fits; of several files the one for batches of this
            size gives the reason.
    """
    return dict(_needed_plan(job, directory, group) for group in range(len(job.groups)))


def found_plans(job: Job, directory: RunDirectory) -> tuple[dict[Path, str], str]:
    """Return the plans if there is one that fits for every group, else why not."""
    if not all(_files(job, directory, group) for group in range(len(job.groups))):
        return {}, f"no plan in {directory.path} yet" + (" for some of the replicas" if job.mixed else "")
    try:
        return needed_plans(job, directory), ""
    except PerseusError as error:
        return {}, error.message  # its hint is to use mode automatic


def files_for(job: Job, directory: RunDirectory) -> list[Path]:
    """Return where new plans go: beside the same job's plan for batches of another size, else instead.

    Shape: [groups].
    """
    beside = job.schedule.microbatches if _is_of_another_size(job, directory) else None
    return [directory.plan_of(group, beside) for group in range(len(job.groups))]


def _needed_plan(job: Job, directory: RunDirectory, group: int) -> tuple[Path, str]:
    files = _files(job, directory, group)
    if not files:
        raise PlanMismatchError(
            f"perseus.mode is 'run' and there is no plan {directory.plan_of(group)}",
            hint="use mode automatic once",
        )
    refusals: list[PerseusError] = []
    for file in files:
        try:
            return file, _fitting(file, job, group, directory.writers)
        except PerseusError as error:
            refusals.append(error)
    raise refusals[-1]


def _files(job: Job, directory: RunDirectory, group: int) -> list[Path]:
    both = directory.plan_of(group), directory.plan_of(group, job.schedule.microbatches)
    return [file for file in both if file.exists()]


def _fitting(file: Path, job: Job, group: int, writers: frozenset[int]) -> str:
    plans = read_plans(file, writers=writers)
    if not (wrong := differences(job.plan_fingerprint(group), plans.fingerprint)):
        return dumps(plans)
    if not plans.fingerprint:
        raise PlanMismatchError(
            f"{file} was made for no job: it was planned from a table",
            hint="use mode automatic, or plan from this job's profile.json",
        )
    if _differ_in_size_alone(job.plan_fingerprint(group), plans.fingerprint):
        theirs = plans.fingerprint["microbatches"]
        wrong = f"batches of {theirs} microbatches, this job's have {job.schedule.microbatches}"
        raise PlanMismatchError(f"{file} is this job's plan for {wrong}", hint="use mode automatic")
    raise PlanMismatchError(f"{file} was made for another job: {wrong}", hint="use mode automatic")


def _is_of_another_size(job: Job, directory: RunDirectory) -> bool:
    """Whether the first group's plan is this job's but for the size of its batches."""
    if not directory.plan.exists():
        return False
    try:
        theirs = read_plans(directory.plan, writers=directory.writers).fingerprint
    except PerseusError:
        return False
    return _differ_in_size_alone(job.plan_fingerprint(), theirs)


def _differ_in_size_alone(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    same = {key: value for key, value in ours.items() if key not in _OF_A_SIZE}
    return not differences(same, theirs) and theirs.get("microbatches") != ours["microbatches"]
