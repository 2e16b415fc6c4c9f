"""Conflicts over clocks: the rank that logs one, how often, and the counts."""

import json
from pathlib import Path

import pytest
from lone_job import NotingGpu

from perseus_ds.device.gpu import ConflictKind, Sighting
from perseus_ds.errors import DeviceError, DeviceLostError, DeviceUnavailableError
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.status import KINDS, ConflictMonitor

LOST, BACK = ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK
CAPPED = Sighting(
    ConflictKind.POWER_CAP, "the power cap holds the clock down: 900 MHz asked, 800 MHz seen", 7
)


class ContestedGpu(NotingGpu):
    """A GPU that others work on, and whose service comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Sighting] = []
        self.why: DeviceError | None = None
        self.losses = self.returns = 0
        self.doubted = False

    def conflicts(self) -> tuple[Sighting, ...]:
        counts = ((LOST, self.losses), (BACK, self.returns))
        return (*self.seen, *(Sighting(kind, kind.text, count) for kind, count in counts if count))

    def given_up(self) -> DeviceError | None:
        return self.why

    def in_control(self) -> bool:
        return self.losses == self.returns and not self.doubted


class Ranks:
    """The ranks of a job, whose reports travel as in an exchange: the greatest of each place."""

    def __init__(self, folder: Path, *, ranks: int = 1, first: int = 0) -> None:
        self.gpus = [ContestedGpu() for _ in range(ranks)]
        self.folder, directory = folder, RunDirectory(folder)
        self.monitors = []
        for rank, gpu in enumerate(self.gpus, first):
            log = EventLog(rank)
            log.writes_to(directory)
            self.monitors.append(ConflictMonitor(gpu, log, rank=rank, directory=directory))

    def iterate(self, times: int = 1) -> None:
        for _ in range(times):
            for monitor in self.monitors:
                assert monitor.check() is None
            reports = [monitor.report() or (0,) * KINDS for monitor in self.monitors]
            for monitor in self.monitors:
                monitor.learn(list(map(max, *reports, (0,) * KINDS)))

    def recorded(self) -> list[tuple[str, int]]:
        return [(event["kind"], event["rank"]) for event in read_events(self.folder / "events.jsonl")]


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return ["lost" if LOST.text in line else "back" if BACK.text in line else line for line in lines]


def test_a_kind_is_said_once_and_recorded_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exchange keeps the greatest of each place: the last rank is noted first, then falls silent."""
    ranks = Ranks(tmp_path, ranks=2)
    for gpu in ranks.gpus:
        gpu.seen = [CAPPED]
    ranks.iterate(3)
    assert ranks.monitors[0].report() == ()
    (line,) = said(capsys)
    assert "rank 1" in line
    assert "power cap" in line
    assert ranks.recorded() == [("power_cap", 1), ("power_cap", 0)]


def test_other_ranks_are_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = Ranks(tmp_path, first=3)
    there.gpus[0].seen = [CAPPED]
    there.iterate(2)
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "events.jsonl").exists()


def test_the_reason_for_giving_up_is_handed_over(tmp_path: Path) -> None:
    here = Ranks(tmp_path)
    here.gpus[0].why = DeviceUnavailableError("somebody else changed the clock")
    assert here.monitors[0].check() is here.gpus[0].why


@pytest.mark.parametrize("rank", [0, 2])
def test_a_lost_gpu_counts_though_nobody_saw_it_go(tmp_path: Path, rank: int) -> None:
    [here] = (ranks := Ranks(tmp_path, first=rank)).monitors
    here.note_failure(DeviceLostError("GPU 0: read energy: the GPU is lost"))
    assert [one.kind for one in here.sightings()] == [ConflictKind.GPU_LOST]
    assert set(here.report()) == {0, 1 + rank}
    assert rank or ranks.recorded() == [("gpu_lost", 0)]


def test_counts_are_added_to_what_stands_in_the_ranks_file(tmp_path: Path) -> None:
    [here], [gpu] = (ranks := Ranks(tmp_path)).monitors, ranks.gpus
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


# Control that is lost and comes back: one line for each, however many ranks lose it and however soon.


def test_every_loss_and_every_return_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(tmp_path, ranks=4)
    for _ in range(2):
        for gpu in ranks.gpus:
            gpu.losses += 1
        ranks.iterate(6)
        assert said(capsys) == ["lost"]
        for gpu in ranks.gpus:
            gpu.returns += 1
        ranks.iterate(6)
        assert said(capsys) == ["back"]
    for kind in ("control_lost", "control_back"):
        assert sorted(ranks.recorded()).count((kind, 2)) == 2


def test_a_return_within_an_iteration_is_said_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(tmp_path, ranks=3)
    for gpu in ranks.gpus:
        gpu.losses = gpu.returns = 1
    ranks.iterate(8)
    assert said(capsys) == ["lost", "back"]
    assert len(ranks.recorded()) == 6


def test_iterations_count_where_clocks_are_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guard that does not answer for a while is doubted in silence."""
    [gpu], [monitor] = (ranks := Ranks(tmp_path)).gpus, ranks.monitors
    counted = []
    for change in ("", "losses", "", "returns", "", "both", "", "doubted", ""):
        gpu.losses += change in {"losses", "both"}
        gpu.returns += change in {"returns", "both"}
        gpu.doubted = change == "doubted"
        gpu.time_s += 1.0
        monitor.check()
        counted.append(monitor.controlled)
    assert counted == [True, False, False, False, True, False, True, False, False]
    assert monitor.uncontrolled_s == 9.0
    assert said(capsys) == []
