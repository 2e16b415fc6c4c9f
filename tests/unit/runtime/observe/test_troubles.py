"""What is wrong with other ranks' counters stands in rank 0's log once."""

from pathlib import Path

import pytest
from lone_job import events_of

from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.event_log import EventLog, log_troubles


def test_each_trouble_is_reported_once_with_its_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(0)
    log.writes_to(RunDirectory(tmp_path))
    for _ in range(2):
        log_troubles(
            log, {0: ["its own"], 1: ["it stands still"], 2: [], 3: ["it stands still", "it counts"]}
        )
    first, second = capsys.readouterr().err.splitlines()
    assert "1 more" in first
    assert "rank 3" in second
    assert [event["ranks"] for event in events_of(tmp_path)] == [[1, 3], [3]]
