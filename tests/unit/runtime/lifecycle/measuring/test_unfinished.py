"""What a sweep has measured so far comes back from its file as it was; what does not fit is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perseus_ds.errors import PerseusError
from perseus_ds.profile import LoadSums, Point, Sweep
from perseus_ds.profile.sweep_cost import SweepPace
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.hardware_groups import HardwareGroup
from perseus_ds.runtime.job import GpuAddress, Job
from perseus_ds.runtime.lifecycle.measuring.unfinished import (
    CountedLoads,
    Unfinished,
    read_unfinished,
    write_unfinished,
)
from perseus_ds.runtime.measure.pooling import Pooled
from perseus_ds.schedule import Kind, Load, textbook

KEY = (0, Kind.FORWARD)
JOB = Job(
    0,
    2,
    0,
    0,
    textbook("1f1b", stages=1, microbatches=2),
    {"model": "gpt"},
    groups=(HardwareGroup((0,), {"gpu": "A100"}), HardwareGroup((1,), {"gpu": "H100"})),
    addresses=(GpuAddress("one", "00:01"), GpuAddress("two", "00:02")),
)


def window(clock_mhz: int) -> Pooled:
    loads = [Load(100.0 + number, 1e4 + 7.0 * number) for number in range(9)]
    sums = LoadSums.of(loads, [0.3 + 0.01 * number for number in range(9)])
    point = Point(clock_mhz, 0.1 + 1e-17, 40.0 / 3.0, 1e-4, 0.02, 12, clock_mhz, 4, 0.001, 61.5)
    fixed_s = {(0, Kind.STEP): 0.02}
    return Pooled({KEY: point}, fixed_s, 81.3, 0.03, 250.0, {KEY: 1.01}, 0.2, {KEY: sums})


def unfinished() -> Unfinished:
    first, second = Sweep((1410, 1100, 840), refused_mhz=frozenset({1095})), Sweep((1980,))
    windows = [[window(1410), window(1100)], [window(1980)]]
    for sweep, own in zip((first, second), windows, strict=True):
        for one in own:
            sweep.record(one.points)
    return Unfinished(
        [first, second],
        windows,
        SweepPace(8.0, 3.0, ran=12.0, lost=0.3, took_s=101.5, timed=9, rested_s=60.25, rested=6, broken=1),
        first_iterations=5,
        void=2,
        loads=CountedLoads(
            Load(104.0, 1e4), [{0: Load(3.0)}, None], [Load(1.0, 2.0)], (((Load(1.0, 2.0),), (Load(3.0),)),)
        ),
    )


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path)
    write_unfinished(unfinished(), JOB, directory.sweep)
    return directory


def back(directory: RunDirectory, job: Job = JOB) -> Unfinished | None:
    return read_unfinished(directory.sweep, job, begins=SweepPace(8.0, 3.0), writers=directory.writers)


def test_it_comes_back_as_it_was(directory: RunDirectory) -> None:
    there, found = unfinished(), back(directory)
    assert found is not None
    assert found.sweeps == there.sweeps
    assert (found.pace, found.loads.seen, found.loads.iterations) == (
        there.pace,
        there.loads.seen,
        there.loads.iterations,
    )
    assert (found.loads.mean, found.loads.own_means) == (there.loads.mean, there.loads.own_means)
    assert (found.first_iterations, found.void, found.done) == (5, 2, 2)
    for own, same in zip(found.windows, there.windows, strict=True):
        for one, other in zip(own, same, strict=True):
            assert replace(one, loads={}) == replace(other, loads={})
            assert np.array_equal(one.loads[KEY].products, other.loads[KEY].products)
            assert np.array_equal(one.loads[KEY].plain, other.loads[KEY].plain)


def test_a_rank_goes_on_with_its_own_groups_clock(directory: RunDirectory) -> None:
    found = back(directory)
    assert found is not None
    assert [found.as_sweeps(mine=group).clock_mhz for group in (0, 1)] == [840, 1980]
    assert not found.as_sweeps(mine=0).finished


def test_nothing_is_there_where_nothing_was_measured(tmp_path: Path) -> None:
    assert back(RunDirectory(tmp_path)) is None


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (replace(JOB, fingerprint={"model": "bert"}), "is of another job: model is gpt, this job's is bert"),
        (replace(JOB, groups=JOB.groups[:1]), "is of 2 groups of GPUs, this job has 1"),
        (replace(JOB, addresses=JOB.addresses[::-1]), "is of other GPUs than this job has now"),
    ],
)
def test_windows_of_others_are_refused(directory: RunDirectory, job: Job, why: str) -> None:
    with pytest.raises(PerseusError, match=why):
        back(directory, job)
