"""The pictures that a run directory allows, drawn one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from perseus_ds.report.contents import Contents
from perseus_ds.report.contents.figures import Figures, headline, per_pipeline, planned_headline
from perseus_ds.report.pictures.causes import draw_causes
from perseus_ds.report.pictures.clocks import draw_clocks
from perseus_ds.report.pictures.frontier import draw_frontier
from perseus_ds.report.pictures.profile import draw_profile
from perseus_ds.report.pictures.saving import draw_saving
from perseus_ds.report.pictures.timeline import draw_timelines
from perseus_ds.report.timeline.energy_causes import causes, causes_beside, clock_changes

MOST_SPANS = 12_000
"""Of the timelines together that the page draws box by box: about 2 MB of SVG."""
MEASURED_DURATIONS = (
    "Measured durations, placed by the schedule's graph; colour is mean power, dark feet the critical path."
)


class Slot(Enum):
    """How a picture stands on the page; the value is its CSS class."""

    WIDE = "wide"
    NARROW = "narrow"
    BESIDE_THE_PAGE = "none"  # the page draws it itself


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG, its heading on the page, and what to look for in it."""

    path: Path
    heading: str
    caption: str
    place: Slot = Slot.NARROW


def draw_all(contents: Contents, found: Figures, directory: Path) -> Iterator[Picture]:
    """Draw into ``directory`` what there is data for."""
    if contents.timelines:
        yield _timeline(contents, found, directory / "timeline.png")
        yield _causes(contents, found, directory / "causes.png")
    if found.rows:
        yield _saving(found, directory / "saving.png")
    if contents.chosen is not None:
        yield _frontier(contents, found, directory / "frontier.png")
        yield _clocks(contents, found, directory / "clocks.png")
    if contents.profile is not None:
        yield _profile(contents, found, directory / "profile.png")


def _timeline(contents: Contents, found: Figures, path: Path) -> Picture:
    draw_timelines(
        contents.in_order(),
        path,
        title=headline(found),
        subtitle=found.job,
        critical=contents.critical_paths(),
    )
    spans = sum(len(timeline.spans) for timeline in contents.timelines.values())
    place = Slot.BESIDE_THE_PAGE if spans <= MOST_SPANS else Slot.WIDE
    return Picture(path, "One iteration, before and after", MEASURED_DURATIONS, place)


def _causes(contents: Contents, found: Figures, path: Path) -> Picture:
    parts = [causes(timeline) for timeline in contents.in_order()]
    beside = [] if contents.plans is None else causes_beside(contents.plans, contents.events)
    draw_causes([*parts, *beside], path, title="What the energy goes into", subtitle=found.job)
    changes = [f"{clock_changes(timeline):.1f} ({timeline.name})" for timeline in contents.in_order()]
    caption = f"One pipeline, one iteration. Changes of clock per iteration and rank: {', '.join(changes)}."
    if beside:
        caption += " The lower two, as planned: until the last straggler arrives."
    return Picture(path, "Energy by cause", caption)


def _profile(contents: Contents, found: Figures, path: Path) -> Picture:
    assert contents.profile is not None
    draw_profile(contents.profile, contents.chosen, path, title="The profile", subtitle=found.job)
    caption = (
        "Time against energy of every computation, a point per clock; circled: clocks that the plan uses."
    )
    return Picture(path, "Profile", caption, Slot.WIDE)


def _saving(found: Figures, path: Path) -> Picture:
    draw_saving(found, path, title=headline(found), subtitle=found.job)
    caption = "Filled: measured in the job. Hatched: what was to be expected of the plan."
    return Picture(path, "Saving", caption)


def _frontier(contents: Contents, found: Figures, path: Path) -> Picture:
    assert contents.chosen is not None
    measured = None if contents.summary is None else per_pipeline(contents.summary, contents.chosen.of)
    draw_frontier(contents.chosen, measured, path, title=planned_headline(found), subtitle=found.job)
    caption = "Every kept plan; below it, the least that any plan as fast needs in the model of this profile."
    if contents.summary is not None and measured is None:
        caption += " Measured energies are of the whole job, of an unknown number of GPUs: not drawn."
    return Picture(path, "Frontier", caption)


def _clocks(contents: Contents, found: Figures, path: Path) -> Picture:
    assert contents.chosen is not None
    draw_clocks(contents.chosen, path, title=_clocks_title(contents), subtitle=found.job)
    caption = "What each stage runs each microbatch at."
    if len(contents.chosen.of.splits):
        caption += " Where a computation changes its clock while it runs, the mean over its work."
    return Picture(path, "Clocks of the plan", caption, Slot.WIDE)


def _clocks_title(contents: Contents) -> str:
    assert contents.chosen is not None
    plan = contents.chosen
    where = " (simulated GPU)" if contents.simulated else ""
    return f"Clocks of plan {plan.index} of {len(plan.of)}, {plan.iteration_time_s:.4g} s{where}"
