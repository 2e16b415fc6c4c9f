"""The switching latency that ranks join from their calibrations."""

from dataclasses import replace
from pathlib import Path

import pytest
from lone_job import NotingGpu

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import DeviceLostError
from perseus_ds.run_directory.events import read_events
from perseus_ds.runtime.context import Answer, SwitchLatency, join_calibrations
from perseus_ds.runtime.event_log import EventLog

MINE = Calibration(0.004, 0.020, 0.018, None, 0.1, 0)
NOTHING = Calibration(0.004, None, None, None, 0.1, 1)


ABLE = NotingGpu().capabilities()


def test_the_longest_wait_of_all_ranks_is_the_lead(log: EventLog, tmp_path: Path) -> None:
    slow = Calibration(0.010, 0.046, 0.040, None, 0.1, 0)
    able, found = join_calibrations(
        ABLE, MINE, [Calibration(0.004, 0.030, 0.025, None, 0.1, 0), slow, NOTHING], log
    )
    assert able.switch_latency_s == 0.046
    assert found == Calibration(0.004, 0.020, 0.018, 0.046, 0.1, 1)
    [event] = read_events(tmp_path / "events.jsonl")
    assert event["event"] == "calibrated"
    assert event["together_s"] == 0.046


def test_a_lower_clock_is_asked_for_no_earlier_than_it_takes_alone(log: EventLog) -> None:
    """While the others wait for the driver it may come sooner, and would slow what still runs."""
    able, found = join_calibrations(ABLE, MINE, [MINE, Calibration(0.004, 0.046, 0.040, None, 0.1, 0)], log)
    change = SwitchLatency(able, found).change
    assert change.latency_s(1005, 1410) == pytest.approx(0.046)
    assert change.latency_s(1410, 1005) == pytest.approx(0.018)
    assert SwitchLatency(ABLE).change.latency_s(1410, 1005) == ABLE.switch_latency_s


def test_a_rank_by_itself_counts_what_it_missed_once(log: EventLog) -> None:
    alone = replace(MINE, unreached=1)
    _, found = join_calibrations(ABLE, alone, [alone], log)
    assert found.unreached == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NOTHING, "not reached"),
        (replace(NOTHING, idle=1), "idle"),
        (Calibration(0.1, None, None, None, None, 0), "rarely"),
        (DeviceLostError("gone"), "gone"),
    ],
)
def test_what_cannot_be_measured_is_as_declared_and_said_once(
    log: EventLog, capsys: pytest.CaptureFixture[str], answer: Answer, why: str
) -> None:
    able, found = join_calibrations(ABLE, answer, [answer, replace(NOTHING, unreached=0)], log)
    assert able == ABLE
    assert found is None
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert why in said[0]
    assert "20 ms" in said[0]
