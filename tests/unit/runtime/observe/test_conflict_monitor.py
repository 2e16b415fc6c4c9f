"""Who says a conflict, how often, and what is counted."""

import json
from pathlib import Path

import pytest
from lone_job import NotingGpu

from perseus_ds.device.gpu import ConflictKind, Sighting
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.conflicts import ConflictMonitor
from perseus_ds.runtime.event_log import EventLog


class ContestedGpu(NotingGpu):
    """A GPU that others work on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Sighting] = []
        self.why: DeviceError | None = None

    def conflicts(self) -> tuple[Sighting, ...]:
        return tuple(self.seen)

    def given_up(self) -> DeviceError | None:
        return self.why


@pytest.fixture
def gpu() -> ContestedGpu:
    return ContestedGpu()


def conflict_monitor(gpu: ContestedGpu, folder: Path, rank: int = 0) -> ConflictMonitor:
    directory, log = RunDirectory(folder), EventLog(rank)
    log.writes_to(directory)
    return ConflictMonitor(gpu, log, rank=rank, directory=directory)


NOBODY: tuple[int, ...] = ()


def unpublished(*, by: int) -> tuple[int, ...]:
    """One rank has something to tell of the power cap."""
    return tuple((by + 1) * (kind is ConflictKind.POWER_CAP) for kind in ConflictKind)


CAPPED = Sighting(
    ConflictKind.POWER_CAP, "the power cap holds the clock down: 900 MHz asked, 800 MHz seen", 7
)


def test_each_kind_is_said_once_and_recorded_for_every_rank(
    gpu: ContestedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = conflict_monitor(gpu, tmp_path)
    gpu.seen = [CAPPED]
    assert here.check() is None
    for tellers in (NOBODY, unpublished(by=1), here.unpublished(), here.unpublished()):
        here.learn(tellers)
    assert here.unpublished() == NOBODY
    (line,) = capsys.readouterr().err.splitlines()
    assert "rank 1" in line
    assert "power cap" in line
    recorded = [
        (event["event"], event["kind"], event["rank"]) for event in read_events(tmp_path / "events.jsonl")
    ]
    assert recorded == [("conflict", "power_cap", 1), ("conflict", "power_cap", 0)]


def test_other_ranks_are_silent(
    gpu: ContestedGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.seen = [CAPPED]
    there = conflict_monitor(gpu, tmp_path, rank=3)
    there.check()
    there.learn(there.unpublished())
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "events.jsonl").exists()


def test_the_reason_for_giving_up_is_handed_over(gpu: ContestedGpu, tmp_path: Path) -> None:
    gpu.why = DeviceUnavailableError("somebody else changed the clock")
    assert conflict_monitor(gpu, tmp_path).check() is gpu.why


def test_a_lost_gpu_counts_though_nobody_saw_it_go(gpu: ContestedGpu, tmp_path: Path) -> None:
    here = conflict_monitor(gpu, tmp_path)
    here.failed(DeviceLostError("GPU 0: read energy: the GPU is lost"))
    assert [one.kind for one in here.sightings()] == [ConflictKind.GPU_LOST]
    assert [event["kind"] for event in read_events(tmp_path / "events.jsonl")] == ["gpu_lost"]


def test_counts_are_added_to_what_stands_in_the_ranks_file(gpu: ContestedGpu, tmp_path: Path) -> None:
    here = conflict_monitor(gpu, tmp_path)
    here.write()
    assert not (tmp_path / "ranks").exists()
    file = tmp_path / "ranks" / "rank_00000.json"
    file.parent.mkdir()
    file.write_text('{"rank": 0, "stage": 4}')
    gpu.seen = [CAPPED]
    here.write()
    content = json.loads(file.read_text())
    assert content["stage"] == 4
    assert content["conflicts"] == [{"kind": "power_cap", "line": CAPPED.line, "count": 7}]


def test_what_a_failing_rank_has_seen_is_told_the_others(gpu: ContestedGpu, tmp_path: Path) -> None:
    here = conflict_monitor(gpu, tmp_path, rank=2)
    here.failed(DeviceLostError("GPU 2: read energy: the GPU is lost"))
    assert set(here.unpublished()) == {0, 3}


def test_of_two_ranks_that_see_the_same_both_are_heard_in_turn(tmp_path: Path) -> None:
    """The exchange keeps the greatest of each place: the last rank is observed first, then falls silent."""
    first, second = ContestedGpu(), ContestedGpu()
    ranks = [conflict_monitor(first, tmp_path, rank=0), conflict_monitor(second, tmp_path, rank=1)]
    for rank, gpu in zip(ranks, (first, second), strict=True):
        gpu.seen = [CAPPED]
        rank.check()
    for _ in range(3):
        announced = [rank.unpublished() or (0,) * 8 for rank in ranks]
        for rank in ranks:
            rank.learn(list(map(max, *announced)))
    recorded = [(event["kind"], event["rank"]) for event in read_events(tmp_path / "events.jsonl")]
    assert recorded == [("power_cap", 1), ("power_cap", 0)]
