"""Which plan of the frontier the job ran at: as it says itself, else the one that loses no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.config import Objective
from perseus_ds.plan import FrequencyPlan, PlanSet, select
from perseus_ds.run_directory import Summary

_KEYS = ("plan", "plan_index")


def chosen_plan(
    plans: PlanSet, summary: Summary | None, events: Sequence[Mapping[str, object]]
) -> FrequencyPlan:
    """Look in the summary's facts, then in the journal from its end, for the plan's index."""
    places = [summary.facts] if summary is not None else []
    places += [event for event in reversed(events) if event.get("event") in {"running", "planned"}]
    for place in places:
        for key in _KEYS:
            index = place.get(key)
            if isinstance(index, int) and 0 <= index < len(plans):
                return plans.plan(index)
    return select(plans, Objective())
