"""Why a job ended without a measured figure, read off its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_REASONS = {
    "attached": "it ended before its warm-up was over",
    "warming_up": "it ended before its warm-up was over",
    "calibrated": "it ended before its warm-up was over",
    "profiling": "it ended while clocks were being profiled",
    "profiled": "it ended before its plan was there",
    "planning": "it ended before its plan was there",
    "running": "it ended before the first audit, which measures the saving",
    "too_slow": "this host was too slow for the GPUs that it simulates",
    "alone": "a rank fell silent, and did not answer again",
    "disabled": "we were off",
}
_REMEDY = {
    "attached": "run it for longer",
    "profiling": "run it for longer, or set perseus.profile.max_clocks lower",
    "profiled": "its profile is kept: the next start plans at once",
    "planning": "its profile is kept: the next start plans at once",
    "too_slow": 'set simulated.time to "virtual"',
    "running": "its plan is kept: the next start runs it at once; perseus.audit.every_iterations sets when",
}
_NOTHING_TO_MEASURE = frozenset({"profile", "observe"})


def why_unmeasured(events: Sequence[Mapping[str, object]]) -> str | None:
    """Return why the journal's last job left no figure, and what to do; None where it left one or was not to.

    Jobs follow each other in one journal: each begins with its ``attached``.
    """
    last: list[Mapping[str, object]] = []
    for event in events:
        last = [event] if event.get("event") == "attached" else [*last, event]
    names = [str(event.get("event")) for event in last]
    if not last or "measured" in names or str(last[0].get("mode")) in _NOTHING_TO_MEASURE:
        return None
    if last[0].get("start") == "observe":
        return None
    reached = next((name for name in reversed(names) if name in _REASONS), "attached")
    remedy = f"; {_REMEDY[reached]}" if reached in _REMEDY else ""
    return f"no saving was measured: {_REASONS[reached]}{remedy}"
