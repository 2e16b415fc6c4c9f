"""How the GPUs of a job change clocks, as the profile file keeps it."""

from __future__ import annotations

from perseus_ds.device import Calibration
from perseus_ds.errors import ProfileError

_LATENCIES = ("call_s", "up_s", "down_s", "together_s", "counter_period_s")
_KEYS = frozenset({*_LATENCIES, "unreached", "idle", "memory_why_not"})
_MOST_S = 1e6


def read_calibration(content: object) -> Calibration | None:
    """Read what `dataclasses.asdict` made of a calibration; profiles of before have none.

    Raises:
        ProfileError: naming the key that is missing or is no duration.
    """
    if content is None:
        return None
    if not isinstance(content, dict):
        raise ProfileError("calibration is not an object", hint="profile the job again")
    if unknown := sorted(content.keys() - _KEYS):
        raise ProfileError(f"calibration has an unknown key {unknown[0]!r:.40}", hint="profile the job again")
    times_s = {key: _duration_s(key, content.get(key)) for key in _LATENCIES}
    memory_why_not = content.get("memory_why_not")
    if not isinstance(memory_why_not, str | None):
        raise ProfileError(
            f"calibration.memory_why_not is {memory_why_not!r:.40}", hint="expected text, or null"
        )
    return Calibration(
        **times_s,
        unreached=_count("unreached", content),
        idle=_count("idle", content),
        memory_why_not=memory_why_not,
    )


def _count(key: str, content: dict[str, object]) -> int:
    value = content.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProfileError(f"calibration.{key} is {value!r:.40}", hint="profile the job again")
    return value


def _duration_s(key: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProfileError(f"calibration.{key} is {value!r:.40}", hint="expected seconds, or null")
    if not 0 <= value <= _MOST_S:
        raise ProfileError(f"calibration.{key} is {value!r}", hint=f"expected seconds, 0 to {_MOST_S:g}")
    return float(value)
