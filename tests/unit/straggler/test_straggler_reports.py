"""Reports of nvidia-resiliency-ext: ours has the members of theirs, theirs becomes announcements."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory import RankPlace, RunDirectory, append_event, write_places
from perseus_ds.straggler import Notices
from perseus_ds.straggler.announcement.resiliency import (
    StragglerId,
    notify_host,
    notify_report,
    straggler_report,
)

MEMBERS = {
    "gpu_relative_perf_scores",
    "section_relative_perf_scores",
    "gpu_individual_perf_scores",
    "section_individual_perf_scores",
    "rank_to_node",
    "local_section_summaries",
    "local_kernel_summaries",
    "generate_report_elapsed_time",
    "gather_on_rank0",
    "rank",
    "identify_stragglers",
}
"""Source: nvidia_resiliency_ext/straggler/reporting.py, ``Report``."""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Two pipelines of two ranks; the second is on a host of its own."""
    found = RunDirectory(tmp_path / "run")
    here = {"replicas": 2, "host": socket.gethostname(), "pid": os.getpid()}
    append_event(found.events, "attached", here)
    write_places(
        [RankPlace(rank % 2, rank // 2, f"n{rank % 2}", f"gpu-{rank}") for rank in range(4)], found.places
    )
    return found


def announced(directory: RunDirectory) -> list[float]:
    return Notices(directory.notices, replicas=2).poll().announced.tolist()


def slow(directory: RunDirectory) -> None:
    gpus = [{"host": "n1", "gpu": f"gpu-{rank}"} for rank in (1, 3)]
    append_event(directory.events, "straggler", {"stragglers": [{"slowdown": 1.6, "gpus": gpus}]})


def test_our_decision_has_the_members_of_their_report(directory: RunDirectory) -> None:
    slow(directory)
    report = straggler_report(directory.path)
    assert set(dir(report)) >= MEMBERS
    assert dict(report.gpu_relative_perf_scores) == {0: 1.0, 1: 1 / 1.6, 2: 1.0, 3: 1 / 1.6}
    found = report.identify_stragglers()
    assert found["straggler_gpus_relative"] == {StragglerId(1, "n1"), StragglerId(3, "n1")}
    assert report.identify_stragglers(gpu_rel_threshold=0.5)["straggler_gpus_relative"] == set()
    assert report.gpus[3] == "gpu-3"


def test_who_recovered_is_no_straggler(directory: RunDirectory) -> None:
    slow(directory)
    append_event(directory.events, "straggler_gone", {})
    assert set(straggler_report(directory.path).gpu_relative_perf_scores.values()) == {1.0}


def test_our_own_report_comes_back_as_an_announcement(directory: RunDirectory) -> None:
    slow(directory)
    notify_report(directory.path, straggler_report(directory.path))
    assert announced(directory) == [1.0, pytest.approx(1.6)]


def test_their_report_announces_and_ends(directory: RunDirectory) -> None:
    scores = {0: 0.97, 1: 0.9, 2: math.nan, 3: 0.5}
    notify_report(directory.path, SimpleNamespace(gpu_relative_perf_scores=scores))
    assert announced(directory) == [1.0, 2.0]
    notify_report(directory.path, SimpleNamespace(gpu_relative_perf_scores={3: 0.99}))
    assert announced(directory) == [1.0, 1.0]


def test_a_host_in_maintenance_slows_its_pipelines(directory: RunDirectory) -> None:
    notify_host(directory.path, "n1", slowdown=1.3, reason="its rack is serviced")
    assert announced(directory) == [1.0, 1.3]
    with pytest.raises(PerseusError, match="no GPU on host 'n9'"):
        notify_host(directory.path, "n9", slowdown=1.3)


@pytest.mark.parametrize(
    ("scores", "named"),
    [
        ({9: 0.5}, "the report has rank 9, the job has 0 to 3"),
        ({1: -0.5}, "rank 1 has a relative performance"),
    ],
)
def test_a_report_of_something_else_is_refused(
    directory: RunDirectory, scores: dict[int, float], named: str
) -> None:
    with pytest.raises(PerseusError, match=named):
        notify_report(directory.path, SimpleNamespace(gpu_relative_perf_scores=scores))
    assert not directory.notices.exists()
