"""What DeepSpeed's monitors are given, and when they are asked at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perseus_ds.adapters.deepspeed import EngineAdapter

Row = tuple[str, float, int]


class Monitor:
    """Keeps what is written."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.rows: list[Row] = []

    def write_events(self, event_list: list[Row]) -> None:
        self.rows += event_list


def engine(monitor: Monitor | None, *, rank: int = 0, steps_per_print: object = 4) -> Any:  # noqa: ANN401
    return SimpleNamespace(
        global_rank=rank, global_samples=64, monitor=monitor, steps_per_print=lambda: steps_per_print
    )


def test_scalars_stand_beside_deepspeeds_own() -> None:
    monitor = Monitor()
    EngineAdapter(engine(monitor)).write_scalars({"plan": 3, "slack_s": 0.5})
    assert monitor.rows == [("Perseus/plan", 3, 64), ("Perseus/slack_s", 0.5, 64)]


@pytest.mark.parametrize(("steps", "every"), [(4, 4), (None, 10), (0, 10)])
def test_as_often_as_the_engine_prints(steps: object, every: int) -> None:
    assert EngineAdapter(engine(Monitor(), steps_per_print=steps)).scalars_every == every


@pytest.mark.parametrize(
    ("monitor", "rank"),
    [(None, 0), (Monitor(enabled=False), 0), (Monitor(), 1)],
    ids=["none", "off", "rank 1"],
)
def test_nobody_looks(monitor: Monitor | None, rank: int) -> None:
    assert EngineAdapter(engine(monitor, rank=rank)).scalars_every is None
