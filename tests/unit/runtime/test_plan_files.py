"""Plans for batches of several sizes lie beside each other, and each is found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from schedules import two_plans

from perseus_ds.errors import PlanError
from perseus_ds.plan import loads, write_plans
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.job import Job, schedule_traits
from perseus_ds.runtime.plans import file_for, found_plan, needed_plan
from perseus_ds.schedule import textbook


def job(microbatches: int, gpu: str = "A100") -> Job:
    schedule = textbook("1f1b", stages=2, microbatches=microbatches)
    return Job(0, 2, 0, 0, schedule, {"gpu": gpu, "replicas": "1", **schedule_traits(schedule)})


def leave(one: Job, file: Path) -> None:
    write_plans(replace(two_plans(), fingerprint=dict(one.fingerprint)), file)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def test_the_first_size_has_the_plan_and_others_lie_beside_it(directory: RunDirectory) -> None:
    assert file_for(job(4), directory) == directory.plan
    leave(job(4), directory.plan)
    assert file_for(job(4), directory) == directory.plan
    beside = file_for(job(8), directory)
    assert beside.name == "plan.m8.json"
    leave(job(8), beside)
    for size in (4, 8):
        found, why = found_plan(job(size), directory)
        assert found is not None
        file, text = found
        assert file == (beside if size == 8 else directory.plan)
        assert loads(text).fingerprint["microbatches"] == str(size)
        assert why == ""


def test_a_plan_of_a_table_is_refused_in_a_few_words(directory: RunDirectory) -> None:
    write_plans(replace(two_plans(), fingerprint={}), directory.plan)
    with pytest.raises(PlanError, match="table"):
        needed_plan(job(4), directory)


def test_another_jobs_plan_is_replaced(directory: RunDirectory) -> None:
    leave(job(4, gpu="H100"), directory.plan)
    assert file_for(job(8), directory) == directory.plan


def test_a_plan_that_cannot_be_read_is_replaced(directory: RunDirectory) -> None:
    directory.plan.write_text("torn")
    assert file_for(job(8), directory) == directory.plan


@pytest.mark.parametrize("beside", [False, True])
def test_where_none_fits_the_file_for_batches_of_this_size_says_why(
    directory: RunDirectory, *, beside: bool
) -> None:
    leave(job(4), directory.plan)
    if beside:
        leave(job(8, gpu="H100"), directory.plan_of(8))
    with pytest.raises(PlanError) as caught:
        needed_plan(job(8), directory)
    assert ("plan.m8.json" if beside else "plan.json") in caught.value.message
    assert ("H100" if beside else "4 microbatches") in caught.value.message
    why = found_plan(job(8), directory)[1]
    assert caught.value.message in why
    assert "automatic" not in why, "where the mode is automatic already"
