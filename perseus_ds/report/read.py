"""Everything that a run directory holds, read once; what is missing is named, with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perseus_ds.config import Objective
from perseus_ds.errors import PerseusError
from perseus_ds.plan import FrequencyPlan, PlanSet, read_plans, select
from perseus_ds.plan.select import count_of
from perseus_ds.profile import Profile, read_profile
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import (
    RankRecord,
    RecordedIteration,
    Summary,
    read_ranks,
    read_summary,
    read_timelines,
)
from perseus_ds.schedule import Instruction, Schedule, dag_of


def short(value: float, *, digits: int = 4) -> str:
    """Round to ``digits`` digits, but not before the decimal point: 0.01235, 12.35, 17207."""
    whole = 1 + math.floor(math.log10(abs(value))) if value else 1
    return f"{value:.{max(0, digits - whole)}f}"


Part = TypeVar("Part")
Event = Mapping[str, object]

_FIRST = "attached"
_OF_A_SIZE = {None, "running", "planning", "measured"}  # None: a summary's facts
_EARLIER = "is of an earlier run in this directory; this run has not measured its saving yet"
_NEVER_IN_MODE = {
    "profile": {"plan.json", "summary.json", "timelines.json"},
    "observe": {"summary.json"},
    "off": {"profile.json", "plan.json", "summary.json", "timelines.json"},
}


@dataclass(frozen=True, slots=True)
class Missing:
    """A file that is not there or cannot be read, and why."""

    file: str
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class RunData:
    """The parts of a run directory; None or empty where a part is in ``missing``.

    Everything is of the journal's last run: ``events`` begin with its ``attached``, and measurements of an
    earlier run in the same directory are left out. ``earlier_runs`` counts those. The first of ``timelines``
    is at default clocks.
    """

    run_dir: Path
    profile: Profile | None
    plans: PlanSet | None
    summary: Summary | None
    timelines: tuple[RecordedIteration, ...]
    events: tuple[Event, ...]
    missing: tuple[Missing, ...]
    ranks: tuple[RankRecord, ...] = ()
    earlier_runs: int = 0

    @property
    def attached(self) -> Event:
        """The event that the run began with; empty where the journal has none."""
        return next((event for event in self.events if event.get("event") == _FIRST), {})

    @property
    def chosen(self) -> FrequencyPlan | None:
        """The plan that the job runs at."""
        return None if self.plans is None else chosen_plan(self.plans, self.summary, self.events)

    def critical_paths(self) -> Mapping[str, tuple[Instruction, ...]]:
        """Return each timeline's longest path, by its name; empty without a plan, which has the graph."""
        if self.plans is None:
            return {}
        return {one.name: critical_path(one, self.plans.schedule) for one in self.timelines}

    @property
    def simulated(self) -> bool:
        """Return whether the numbers come from a simulated GPU, by any part that states it."""
        if self.summary is not None and self.summary.simulated:
            return True
        if any(timeline.simulated for timeline in self.timelines):
            return True
        gpu = self.fingerprint.get("gpu", "")
        return "simulated" in gpu.lower() or self.fingerprint.get("simulated", "no") != "no"

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Return what identifies the job: of the plan, else of the profile."""
        for part in (self.plans, self.profile):
            if part is not None and part.fingerprint:
                return part.fingerprint
        return {}


def load_run(run_dir: Path) -> RunData:
    """Read all parts that are there.

    Raises:
        PerseusError: the directory does not exist, or holds nothing of a job.
    """
    if not run_dir.is_dir():
        raise PerseusError(f"{run_dir}: no such run directory", hint="it is run_dir of the perseus block")
    files, missing, journal, ranks = RunDirectory(run_dir), list[Missing](), list[Event](), list[RankRecord]()
    try:
        journal = list(read_events(files.events))
    except (PerseusError, OSError, ValueError) as error:
        missing.append(Missing(files.events.name, f"cannot be read: {error}"))
    events, earlier = _last_run(journal)
    profile = _part(files.profile, read_profile, events, missing)
    summary = _part(files.summary, read_summary, events, missing)
    timelines = _part(files.timelines, read_timelines, events, missing) or []
    try:
        ranks = list(read_ranks(files.ranks))
    except PerseusError as error:
        missing.append(Missing(files.ranks.name, str(error)))
    run = next((str(event["run"]) for event in events if "run" in event), "")
    measured_in = [str(summary.facts.get("run", ""))] if summary is not None else [one.run for one in ranks]
    if run and any(name != run for name in measured_in):
        missing += [Missing(path.name, _EARLIER) for path in (files.summary, files.timelines)]
        summary, timelines = None, []
    plans = _plans(files, _microbatches(summary, events), events, missing)
    if not events and all(part is None for part in (profile, plans, summary)) and not timelines:
        reasons = "; ".join(f"{part.file}: {part.why}" for part in missing)
        raise PerseusError(f"{run_dir}: no job has written here", hint=reasons)
    in_order = tuple(sorted(timelines, key=lambda timeline: timeline.name != "baseline"))
    own = tuple(one for one in ranks if not run or one.run == run)
    return RunData(run_dir, profile, plans, summary, in_order, events, tuple(missing), own, earlier)


def _last_run(journal: Sequence[Event]) -> tuple[tuple[Event, ...], int]:
    """The events of the last run, and how many runs are before it: each begins with its ``attached``."""
    starts = [place for place, event in enumerate(journal) if event.get("event") == _FIRST]
    return tuple(journal[starts[-1] if starts else 0 :]), max(0, len(starts) - 1)


def _part(
    path: Path, read: Callable[[Path], Part], events: tuple[Event, ...], missing: list[Missing]
) -> Part | None:
    if not path.exists():
        missing.append(Missing(path.name, _why(path.name, events)))
        return None
    try:
        return read(path)
    except PerseusError as error:
        missing.append(Missing(path.name, str(error)))
        return None


def _microbatches(summary: Summary | None, events: Sequence[Event]) -> int | None:
    """Return the microbatches of what was measured, else of what ran or was planned last; None if unknown."""
    facts = [{} if summary is None else summary.facts, *reversed(events)]
    stated = (one.get("microbatches") for one in facts if one.get("event") in _OF_A_SIZE)
    return next((one for one in stated if isinstance(one, int)), None)


def _plans(
    files: RunDirectory, microbatches: int | None, events: tuple[Event, ...], missing: list[Missing]
) -> PlanSet | None:
    """Read the plans for batches of this size; a directory may hold those of several."""
    own = files.plan if microbatches is None else files.plan_of(microbatches)
    if files.plan.exists() or not own.exists():
        plans = _part(files.plan, read_plans, events, missing)
        if plans is None or microbatches in {None, plans.schedule.microbatches}:
            return plans
        if not own.exists():
            theirs = count_of(plans.schedule.microbatches, "microbatch", "es")
            missing.append(
                Missing(own.name, f"the job has not written it; {files.plan.name} is for {theirs}")
            )
            return None
    return _part(own, read_plans, events, missing)


def _why(file: str, events: tuple[Event, ...]) -> str:
    """Explain an absent file by the journal's last events."""
    facts = {key: value for event in events for key, value in event.items()}
    names = [event.get("event") for event in events]
    if "disabled" in names:
        return f"the plugin switched itself off: {facts.get('reason', 'no reason given')}"
    mode = str(facts.get("mode", ""))
    if file in _NEVER_IN_MODE.get(mode, set()):
        return f"mode {mode} does not write it"
    if "finished" in names:
        return "the job ended before it could write it"
    return "the job has not written it yet" if names else "there is no events.jsonl that gives the reason"


def chosen_plan(
    plans: PlanSet, summary: Summary | None, events: Sequence[Mapping[str, object]]
) -> FrequencyPlan:
    """Look in the summary's facts, then in the journal from its end, for the index of one of these plans."""
    places = [] if summary is None else [summary.facts]
    places += [event for event in reversed(events) if event.get("event") in {"running", "planned"}]
    for place in places:
        of_size = place.get("microbatches", plans.schedule.microbatches) == plans.schedule.microbatches
        for index in (place.get("plan"), place.get("plan_index")):
            if of_size and isinstance(index, int) and 0 <= index < len(plans):
                return plans.plan(index)
    return select(plans, Objective())


def critical_path(timeline: RecordedIteration, schedule: Schedule) -> tuple[Instruction, ...]:
    """Return what the iteration time hangs on: a longest path; of predecessors the one that ends last.

    Durations are measured, places follow from the graph, so that each instruction begins as one of those
    before it ends (or its transfer arrives). Instructions that the timeline lacks are passed over.
    """
    ends_s = {span.instruction: span.start_s + span.duration_s for span in timeline.spans}
    dag = dag_of(schedule)
    before: dict[Instruction, list[Instruction]] = {node: [] for node in dag.nodes}
    for earlier, later in dag.edges:
        if dag.nodes[earlier] in ends_s:
            before[dag.nodes[later]].append(dag.nodes[earlier])
    known = [node for node in dag.nodes if node in ends_s]
    if not known:
        return ()
    path = [max(known, key=ends_s.__getitem__)]
    while before[path[-1]]:
        path.append(max(before[path[-1]], key=ends_s.__getitem__))
    return tuple(reversed(path))
