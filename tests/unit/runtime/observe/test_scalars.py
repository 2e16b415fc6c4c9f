"""What DeepSpeed's monitors are given, how often, and what happens when one fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from perseus_ds.adapters.deepspeed.seam import PipelineEngine
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.runtime.observe.scalars import Scalars

Row = tuple[str, float, int]


class Monitor:
    """Keeps what is written."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.rows: list[Row] = []
        self.fails: Exception | None = None

    def write_events(self, event_list: list[Row]) -> None:
        if self.fails is not None:
            raise self.fails
        self.rows += event_list


def scalars(monitor: Monitor | None, *, rank: int = 0, steps_per_print: object = 4) -> Scalars:
    engine: Any = SimpleNamespace(
        global_rank=rank, global_samples=64, monitor=monitor, steps_per_print=lambda: steps_per_print
    )
    return Scalars(cast("PipelineEngine", engine), EventLog(0))


def test_scalars_stand_beside_deepspeeds_own() -> None:
    monitor = Monitor()
    scalars(monitor).write({"plan": 3, "slack_s": 0.5})
    assert monitor.rows == [("Perseus/plan", 3, 64), ("Perseus/slack_s", 0.5, 64)]


def test_they_are_written_at_steps_per_print_and_at_every_change() -> None:
    monitor = Monitor()
    here = scalars(monitor)
    for plan in [3] * 7 + [5] * 2:
        here.write({"plan": plan})
    assert [value for _, value, _ in monitor.rows] == [3, 3, 5], "turns 1, 4 and 8"


@pytest.mark.parametrize(
    ("monitor", "rank"),
    [(None, 0), (Monitor(enabled=False), 0), (Monitor(), 1)],
    ids=["none", "off", "rank 1"],
)
def test_nobody_looks_nothing_is_written(monitor: Monitor | None, rank: int) -> None:
    here = scalars(monitor, rank=rank)
    assert not here.wanted
    here.write({"plan": 3})
    assert monitor is None or monitor.rows == []


def test_before_a_plan_runs_there_is_nothing_to_show() -> None:
    monitor = Monitor()
    scalars(monitor).write({})
    assert monitor.rows == []


def test_a_monitor_that_fails_ends_the_scalars_alone(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = Monitor()
    here = scalars(monitor, steps_per_print=None)
    monitor.fails = OSError("No space left on device")
    for _ in range(30):
        here.write({"plan": 3})
    assert capsys.readouterr().out == (
        "perseus: DeepSpeed's monitor takes no more scalars: No space left on device\n"
    )
    assert not here.wanted
