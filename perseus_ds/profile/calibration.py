"""How the GPUs of a job change clocks, as the profile file keeps it."""

from __future__ import annotations

import math

from perseus_ds.device import Calibration
from perseus_ds.errors import ProfileError

_LATENCIES = ("call_s", "up_s", "down_s", "together_s", "counter_period_s")


def read_calibration(content: object) -> Calibration | None:
    """Read what `dataclasses.asdict` made of a calibration; profiles of before have none.

    Raises:
        ProfileError: naming the key that is missing or is no duration.
    """
    if content is None:
        return None
    if not isinstance(content, dict):
        raise ProfileError("calibration is not an object", hint="profile the job again")
    times_s = {key: _duration_s(key, content.get(key)) for key in _LATENCIES}
    memory_why_not = content.get("memory_why_not")
    if not isinstance(memory_why_not, str | None):
        raise ProfileError(f"calibration.memory_why_not is {memory_why_not!r}", hint="expected text, or null")
    return Calibration(
        **times_s,
        unreached=_count("unreached", content),
        idle=_count("idle", content),
        memory_why_not=memory_why_not,
    )


def _count(key: str, content: dict[str, object]) -> int:
    value = content.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProfileError(f"calibration.{key} is {value!r}", hint="profile the job again")
    return value


def _duration_s(key: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(f"calibration.{key} is {value!r}", hint="expected seconds, or null")
    if not (math.isfinite(value) and value >= 0):
        raise ProfileError(f"calibration.{key} is {value!r}", hint="expected a finite number, 0 or more")
    return float(value)
