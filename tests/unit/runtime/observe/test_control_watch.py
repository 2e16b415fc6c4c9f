"""Control that is lost and comes back: one line for each, however many ranks lose it and however soon."""

from pathlib import Path

import pytest
from lone_job import NotingGpu

from perseus_ds.device.gpu import ConflictKind, Sighting
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.conflicts import KINDS, ConflictMonitor
from perseus_ds.runtime.event_log import EventLog

LOST, BACK = ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK


class LeasedGpu(NotingGpu):
    """A GPU whose service comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = self.returns = 0
        self.doubted = False

    def conflicts(self) -> tuple[Sighting, ...]:
        counts = ((LOST, self.losses), (BACK, self.returns))
        return tuple(Sighting(kind, kind.text, count) for kind, count in counts if count)

    def in_control(self) -> bool:
        return self.losses == self.returns and not self.doubted


class Ranks:
    """The ranks of a job, whose reports travel as in an exchange: the greatest of each place."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.gpus = [LeasedGpu() for _ in range(ranks)]
        self.folder, directory = folder, RunDirectory(folder)
        self.monitors = []
        for rank, gpu in enumerate(self.gpus):
            log = EventLog(rank)
            log.writes_to(directory)
            self.monitors.append(ConflictMonitor(gpu, log, rank=rank, directory=directory))

    def iterate(self, times: int = 1) -> None:
        for _ in range(times):
            for monitor in self.monitors:
                assert monitor.check() is None
            told = [monitor.unpublished() or (0,) * KINDS for monitor in self.monitors]
            for monitor in self.monitors:
                monitor.learn(list(map(max, *told, (0,) * KINDS)))

    def recorded(self) -> list[tuple[str, int]]:
        return [(event["kind"], event["rank"]) for event in read_events(self.folder / "events.jsonl")]


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return ["lost" if LOST.text in line else "back" if BACK.text in line else line for line in lines]


def test_every_loss_and_every_return_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(tmp_path, 4)
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


def test_what_comes_back_within_an_iteration_is_said_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(tmp_path, 3)
    for gpu in ranks.gpus:
        gpu.losses = gpu.returns = 1
    ranks.iterate(8)
    assert said(capsys) == ["lost", "back"]
    assert len(ranks.recorded()) == 6


def test_an_iteration_counts_only_where_clocks_were_ours_from_its_beginning_to_its_end(
    tmp_path: Path,
) -> None:
    [gpu], [monitor] = (ranks := Ranks(tmp_path, 1)).gpus, ranks.monitors
    counted = []
    for change in ("", "losses", "", "returns", "", "both", ""):
        gpu.losses += change in {"losses", "both"}
        gpu.returns += change in {"returns", "both"}
        gpu.time_s += 1.0
        monitor.check()
        counted.append(monitor.control.controlled)
    assert counted == [True, False, False, False, True, False, True]
    assert monitor.control.uncontrolled_s == 6.0


def test_a_guard_that_does_not_answer_for_a_while_is_doubted_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks(tmp_path, 1)
    ranks.gpus[0].doubted = True
    ranks.iterate(3)
    assert not ranks.monitors[0].control.controlled
    ranks.gpus[0].doubted = False
    ranks.iterate(2)
    assert ranks.monitors[0].control.controlled
    assert said(capsys) == []
