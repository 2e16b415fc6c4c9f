"""Of a node's clock changes a job takes the part that its GPUs are of those lent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from perseus_ds.config import PerseusConfig
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.job import GpuAddress
from perseus_ds.runtime.lifecycle.planning.node_crowd import NodeCrowd, own_gpus

ADDRESSES = tuple(GpuAddress(host, gpu) for host in ("a", "b") for gpu in ("0", "1"))
ONE_PIPELINE = tuple((0, rank) for rank in range(4))
TWO_PIPELINES = ((0, 0), (1, 0), (0, 1), (1, 1))


def job_at(rank: int, places: tuple[tuple[int, int], ...]) -> MagicMock:
    return MagicMock(rank=rank, ranks=4, addresses=ADDRESSES, places=places, groups=(0,))


def share(folder: Path, lent_gpus: Callable[[], int | None], *, rank: int = 0) -> NodeCrowd:
    reckoning = MagicMock(crowd=1.0)
    job = job_at(rank, ONE_PIPELINE)
    config, directory = PerseusConfig(enabled=True), RunDirectory(folder)
    return NodeCrowd(MagicMock(job=job, reckoning=reckoning, config=config, directory=directory), lent_gpus)


@pytest.mark.parametrize(("places", "gpus"), [(ONE_PIPELINE, 2), (TWO_PIPELINES, 1)])
def test_a_pipelines_gpus_on_a_node_are_its_own(places: tuple[tuple[int, int], ...], gpus: int) -> None:
    assert [own_gpus(job_at(rank, places)) for rank in range(4)] == [gpus] * 4


@pytest.mark.parametrize(("lent", "crowd"), [(None, 1.0), (2, 1.0), (3, 1.5), (8, 4.0), (1, 1.0)])
def test_others_crowd_the_node(tmp_path: Path, lent: int | None, crowd: float) -> None:
    assert share(tmp_path, lambda: lent).numbers() == (crowd, False)


def test_plans_are_for_the_crowd_of_their_time(tmp_path: Path) -> None:
    one = share(tmp_path, lambda: 8)
    assert one.plan_for(4.0)
    assert not one.plan_for(4.0)


def test_without_a_profile_no_plan_is_asked_for(tmp_path: Path) -> None:
    one = share(tmp_path, lambda: 8)
    for _ in range(100):
        one.take_in(4.0)
        assert one.numbers() == (4.0, False)
