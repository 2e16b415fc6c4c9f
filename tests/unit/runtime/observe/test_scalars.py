"""How often scalars are written, and what happens when a monitor fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.event_log import EventLog, Scalars


class Monitored:
    """As much of an adapter as scalars need."""

    name = "deepspeed"

    def __init__(self, every: int | None = 4) -> None:
        self.scalars_every = every
        self.rows: list[Mapping[str, float]] = []
        self.fails: Exception | None = None

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        if self.fails is not None:
            raise self.fails
        self.rows.append(scalars)


def scalars(monitored: Monitored) -> Scalars:
    return Scalars(cast("Adapter", cast("Any", monitored)), EventLog(0))


def test_they_are_written_at_the_hosts_pace_and_at_every_change() -> None:
    monitored = Monitored()
    here = scalars(monitored)
    for plan in [3] * 7 + [5] * 2:
        here.write({"plan": plan})
    assert [row["plan"] for row in monitored.rows] == [3, 3, 5], "turns 1, 4 and 8"


def test_nobody_looks_nothing_is_written() -> None:
    monitored = Monitored(None)
    here = scalars(monitored)
    assert not here.wanted
    here.write({"plan": 3})
    assert monitored.rows == []


def test_before_a_plan_runs_there_is_nothing_to_show() -> None:
    monitored = Monitored()
    scalars(monitored).write({})
    assert monitored.rows == []


def test_a_monitor_that_fails_ends_the_scalars_alone(capsys: pytest.CaptureFixture[str]) -> None:
    monitored = Monitored()
    here = scalars(monitored)
    monitored.fails = OSError("No space left on device")
    for _ in range(30):
        here.write({"plan": 3})
    (line,) = capsys.readouterr().err.splitlines()
    assert "monitor" in line
    assert not here.wanted
