"""A single vector carries every rank's report: all need to know the greatest of each place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perseus_ds.runtime.channel import FAILED
from perseus_ds.runtime.conflicts import KINDS as ALL_KINDS
from perseus_ds.runtime.status import JobStatus, StatusLayout

KINDS = 7
Said = dict[str, Any]


def told_by(*words: tuple[int, Said], replicas: int = 2) -> JobStatus:
    layouts = [StatusLayout(kinds=KINDS, replicas=replicas, replica=replica) for replica, _ in words]
    vectors = [layout.vector(**said) for layout, (_, said) in zip(layouts, words, strict=True)]
    return layouts[0].job_status(np.maximum.reduce(vectors))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([{"duration_s": 1.5}, {"duration_s": 2.5}], (False, 0, 2.5)),
        ([{"duration_s": 1.5, "plans_ready": 1}, {"duration_s": 1.5}], (False, 1, 1.5)),
        ([{"duration_s": 1.5}, {"failed": True}], (True, 0, None)),
        ([{"duration_s": 1.5}, {"duration_s": None}], (False, 0, None)),
    ],
    ids=["slowest", "plan ready", "one failed", "one does not know"],
)
def test_news_of_all_ranks(words: list[Said], expected: tuple[bool, bool, float | None]) -> None:
    job_status = told_by(*enumerate(words))
    assert (job_status.failed, job_status.plans_ready, job_status.iteration_s) == expected


def test_a_failure_stands_where_the_council_looks_for_it() -> None:
    assert StatusLayout(kinds=KINDS, replicas=2, replica=0).vector(failed=True)[FAILED] == 1.0


def test_a_replica_is_as_slow_as_its_slowest_stage() -> None:
    job_status = told_by(
        (0, {"own_s": 1.0}),
        (0, {"own_s": 1.2}),
        (1, {"own_s": 3.0}),
        (1, {"own_s": 2.0}),
    )
    assert job_status.replicas is not None
    assert job_status.replicas.own_s.tolist() == [1.2, 3.0]


def test_a_replica_of_which_one_stage_knows_nothing_is_unknown() -> None:
    job_status = told_by((0, {"own_s": 1.0}), (0, {"own_s": None}), (1, {"own_s": 3.0}))
    assert job_status.replicas is not None
    assert not np.isfinite(job_status.replicas.own_s[0])
    assert job_status.replicas.own_s[1] == 3.0


def test_caps_and_announcements_reach_all() -> None:
    first = {"own_s": 1.0, "announced": np.array([1.0, 1.3])}
    job_status = told_by((0, first), (1, {"own_s": 1.0, "capped": True}), (1, {"own_s": 1.0}))
    assert job_status.replicas is not None
    assert job_status.replicas.capped.tolist() == [False, True]
    assert job_status.replicas.announced.tolist() == [1.0, 1.3]


def test_nothing_announced_is_no_slowdown() -> None:
    job_status = told_by((0, {}), (1, {}))
    assert job_status.replicas is not None
    assert (job_status.replicas.announced <= 1.0).all()


def test_of_several_who_have_seen_a_conflict_one_is_heard_at_a_time() -> None:
    job_status = told_by((0, {"conflicts": (0, 1, 0, 0, 0, 0, 0)}), (1, {"conflicts": (0, 4, 0, 0, 5, 0, 0)}))
    assert job_status.conflicts == (0, 4, 0, 0, 5, 0, 0)


def test_one_replica_alone_has_no_place_for_replicas() -> None:
    job_status = told_by((0, {"own_s": 1.0, "duration_s": 2.0}), replicas=1)
    assert job_status == JobStatus(failed=False, plans_ready=0, iteration_s=2.0)


def test_all_know_whether_all_ran_batches_of_one_size() -> None:
    alike = told_by(*enumerate([{"microbatches": 4}, {"microbatches": 4}]))
    assert (alike.microbatches, alike.sizes) == (4, None)
    apart = told_by(*enumerate([{"microbatches": 4}, {"microbatches": 6}]))
    assert (apart.microbatches, apart.sizes) == (None, (4, 6))
    unsaid = told_by(*enumerate([{}, {}]))
    assert (unsaid.microbatches, unsaid.sizes) == (None, None)


@pytest.mark.parametrize("replicas", [2, 16])
def test_the_exchange_is_as_small_as_its_page_says(replicas: int) -> None:
    page = (Path(__file__).parents[3] / "docs" / "hosts.md").read_text()
    (head,) = re.findall(r"8 \((\d+) \+ 3 R\) bytes", page)
    layout = StatusLayout(kinds=ALL_KINDS, replicas=replicas, replica=0)
    assert layout.vector().nbytes == 8 * (int(head) + 3 * replicas)
