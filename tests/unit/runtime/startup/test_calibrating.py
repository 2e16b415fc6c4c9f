"""What the ranks of a job make of their calibrations."""

from dataclasses import replace
from pathlib import Path

import pytest
from runtime_fakes import NotingGpu

import perseus_ds.runtime.startup.calibrating as module
from perseus_ds.device import Calibration
from perseus_ds.errors import DeviceLostError
from perseus_ds.run_directory import RunDirectory, read_events
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.runtime.startup.calibrating import Answer, calibrated


class Table:
    """A channel in which the other ranks say what the test lets them say."""

    rank = 0

    def __init__(self, *others: Answer) -> None:
        self.size = 1 + len(others)
        self._others = others

    def broadcast(self, thing: object) -> object:
        return thing

    def gather(self, mine: object) -> list[object]:
        return [mine, *self._others]


MINE = Calibration(0.004, 0.020, 0.018, None, 0.1, 0)
NOTHING = Calibration(0.004, None, None, None, 0.1, 1)


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    log = EventLog(0)
    log.writes_to(RunDirectory(tmp_path))
    return log


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Calibration | Exception) -> None:
    left = list(answers)

    def answer(_: object, *, in_step: bool) -> Calibration:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr(module, "calibrate", answer)


def test_the_longest_wait_of_all_ranks_is_the_lead(
    monkeypatch: pytest.MonkeyPatch, log: EventLog, tmp_path: Path
) -> None:
    answering(monkeypatch, MINE, Calibration(0.004, 0.030, 0.025, None, 0.1, 0))
    slow = Calibration(0.010, 0.046, 0.040, None, 0.1, 0)
    able, found = calibrated(NotingGpu(), Table(slow, NOTHING), log)
    assert able.switch_latency_s == 0.046
    assert found == Calibration(0.004, 0.020, 0.018, 0.046, 0.1, 1)
    [event] = read_events(tmp_path / "events.jsonl")
    assert event["event"] == "calibrated"
    assert event["together_s"] == 0.046


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NOTHING, "a clock was not reached"),
        (replace(NOTHING, idle=1), "the GPU is idle"),
        (Calibration(0.1, None, None, None, None, 0), "looked too rarely"),
        (DeviceLostError("gone"), "gone"),
    ],
)
def test_what_cannot_be_measured_is_as_declared_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
    log: EventLog,
    capsys: pytest.CaptureFixture[str],
    answer: Calibration | Exception,
    why: str,
) -> None:
    answering(monkeypatch, answer, answer)
    gpu = NotingGpu()
    able, found = calibrated(gpu, Table(replace(NOTHING, unreached=0)), log)
    assert able == gpu.capabilities()
    assert found is None
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert why in said[0]
    assert "reckoning with 20 ms" in said[0]
