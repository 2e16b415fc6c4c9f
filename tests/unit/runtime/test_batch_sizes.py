"""Batches of several sizes: each joined once; beyond the fourth, default clocks and one line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.plans import MOST, BatchPlans
from perseus_ds.schedule import textbook


def test_four_sizes_are_served_and_others_run_at_default_clocks(tmp_path: Path) -> None:
    met: list[int] = []

    def placed() -> Place:
        met.append(size)
        return Place(0, 0, (), {0: 1}, {0: 1.0}, "float32")

    log = EventLog(0)
    log.writes_to(RunDirectory(tmp_path))
    adapter: Any = SimpleNamespace(
        place=placed, schedule=lambda _: textbook("1f1b", stages=1, microbatches=size)
    )
    first = Job(0, 1, 0, 0, textbook("1f1b", stages=1, microbatches=1), {})
    context: Any = SimpleNamespace(job=first, channel=SimpleNamespace(gather=lambda mine: [mine]), log=log)
    arrivals: Any = None
    plans = BatchPlans(context, adapter, MagicMock(), arrivals, waits=False)
    served = []
    for size in (1, 2, 4, 8, 16, 32, 16, 8):
        plans.meet(size)
        job = plans.join(size)
        served.append(None if job is None else job.schedule.microbatches)
    assert served == [1, 2, 4, 8, None, None, None, 8]
    assert met == [2, 4, 8]
    refused = [one for one in read_events(tmp_path / "events.jsonl") if one["event"] == "batch_size_refused"]
    assert len(refused) == 1
    assert str(MOST) in refused[0]["line"]
