"""TensorBoard, W&B, Comet and CSV, through DeepSpeed's own monitor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

_EVERY = 10  # DeepSpeed's own default for steps_per_print


class MonitoredEngine(Protocol):
    """What we use of an engine."""

    global_rank: int


class _Monitor(Protocol):
    """What we use of ``deepspeed.monitor.monitor.MonitorMaster``."""

    enabled: bool

    def write_events(self, event_list: list[tuple[str, float, int]]) -> None:
        """Write (name, value, samples) to every monitor that is on."""


def scalars_every(engine: MonitoredEngine) -> int | None:
    """Iterations between two writes; None where no monitor is on, or on another rank than 0."""
    monitor = _monitor(engine)
    if engine.global_rank != 0 or monitor is None or not monitor.enabled:
        return None
    ask = getattr(engine, "steps_per_print", None)
    steps = ask() if callable(ask) else None
    return steps if isinstance(steps, int) and steps > 0 else _EVERY


def write_scalars(engine: MonitoredEngine, scalars: Mapping[str, float]) -> None:
    """Write ``Perseus/...`` beside ``Train/Samples/...``, over the same number of samples."""
    monitor = _monitor(engine)
    assert monitor is not None
    samples = int(getattr(engine, "global_samples", 0))
    monitor.write_events([(f"Perseus/{name}", value, samples) for name, value in scalars.items()])


def _monitor(engine: MonitoredEngine) -> _Monitor | None:
    return cast("_Monitor | None", getattr(engine, "monitor", None))
