"""The switching latency that ranks join from their calibrations."""

from dataclasses import replace
from pathlib import Path

import pytest
from lone_job import NotingGpu, events_of

from perseus_ds.device.clock_change import Calibration
from perseus_ds.errors import DeviceLostError
from perseus_ds.runtime.context import Answer, SwitchLatency, join_calibrations
from perseus_ds.runtime.event_log import EventLog

MINE = Calibration(0.004, 0.020, 0.018, None, 0.1, 0)
SLOW = Calibration(0.010, 0.046, 0.040, None, 0.1, 0)
NOTHING = Calibration(0.004, None, None, None, 0.1, 1)
ABLE = NotingGpu().capabilities()


def test_the_longest_wait_of_all_ranks_is_the_lead_of_a_higher_clock(log: EventLog, tmp_path: Path) -> None:
    """While the others wait for the driver a lower one may come sooner, and would slow what still runs."""
    able, found = join_calibrations(ABLE, MINE, [replace(MINE, up_s=0.030), SLOW, NOTHING], log)
    assert able.switch_latency_s == 0.046
    assert found == Calibration(0.004, 0.020, 0.018, 0.046, 0.1, 1)
    [event] = events_of(tmp_path)
    assert (event["event"], event["together_s"]) == ("calibrated", 0.046)
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
    assert (able, found) == (ABLE, None)
    [line] = capsys.readouterr().err.splitlines()
    assert why in line
    assert "20 ms" in line
