"""What a job states of a ceiling: that none can hold, that costs nothing, that comes before any plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_made_plan import hand_made

from perseus_ds.config import Objective
from perseus_ds.run_directory import RunDirectory, read_events
from perseus_ds.runtime.observe.ceiling_reporter import CeilingReporter
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.straggler import CapNumbers, FrontierIndex, HeldCeiling, PowerCap, Standing

INDEX = FrontierIndex.of(hand_made(), Objective())  # 6 s and 266.7 W, 8 s and 200 W
SITE = Standing(PowerCap(100.0, reason="grid event"), "/run/site/ceiling.json")

SAID = [
    (100.0, "100 W for each pipeline cannot be held: the slowest plan takes 200 W; it runs, 33.3 % slower"),
    (250.0, "250 W for each pipeline: 33.3 % slower, plan 1 takes 200 W"),
    (9000.0, "9 000 W for each pipeline: no slower, the plan takes 267 W"),
]


@pytest.mark.parametrize(("cap_w", "told"), SAID)
def test_a_ceiling_is_one_line_with_what_it_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cap_w: float, told: str
) -> None:
    log, directory = EventLog(0), RunDirectory(tmp_path)
    log.writes_to(directory)
    reporter, ceiling = CeilingReporter(log, lambda: SITE), HeldCeiling([INDEX])
    for _ in range(3):
        ceiling.observe(CapNumbers(cap_w), 6.0)
        reporter.report(ceiling, 6.0)
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f"power ceiling of {told} (/run/site/ceiling.json: grid event)")
    [event] = read_events(directory.events)
    assert (event["event"], event["held"]) == ("power_cap", cap_w >= INDEX.power_w[1])
