"""A job's expectation of its plan: the planner's, where that was for a job like it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from schedules import two_plans

from perseus_ds.plan import Expected
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.planned_run import expected_of
from perseus_ds.schedule import textbook

KNOWN = Expected(12.5, 0.07, 0.25, 0.04)
PLAN = replace(two_plans(), fingerprint={"replicas": "2"}, expected={1: KNOWN}).plan(1)


@pytest.mark.parametrize(("replicas", "index", "known"), [(2, 1, True), (3, 1, False), (2, 0, False)])
def test_the_planner_s_word_holds_for_its_plan_and_as_many_replicas(
    replicas: int, index: int, *, known: bool
) -> None:
    """Rank 1 has no profile to work it out from: else it takes the plan's own."""
    job = Job(1, 4, 1, 0, textbook("1f1b", stages=2, microbatches=1), {"replicas": str(replicas)})
    context = cast("JobContext", SimpleNamespace(job=job))
    plan = PLAN.of.plan(index)
    own = Expected(plan.saving_pct, plan.slowdown_pct, 0.0, 0.0)
    assert expected_of(context, plan) == (KNOWN if known else own)
