"""What the page's script draws: timelines, frontier, clocks of every shown plan, profile, courses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.profile import Profile
from perseus_ds.report.contents.figures import PerPipeline
from perseus_ds.report.contents.gpus import Course
from perseus_ds.report.page.render import packed, rounded
from perseus_ds.report.timeline.lanes import energy_j, lanes, panel_name
from perseus_ds.run_directory import RecordedIteration, Span
from perseus_ds.schedule import Instruction, Kind

MOST_PLANS = 300
MOST_CELLS = 1_000_000
"""Of the clocks of all shown plans together: a few hundred kilobytes once compressed."""
MOST_SPANS = 60_000
SIDE_NAMES = {"baseline": "default clocks", "perseus": "the plan"}


def shown_plans(plan: FrequencyPlan) -> list[int]:
    """Return plans evenly over the frontier, the job's own, the fastest and the slowest among them."""
    count, cells = len(plan.of), len(plan.of.computations())
    most = max(8, min(MOST_PLANS, MOST_CELLS // max(1, cells)))
    even = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return sorted({*even, plan.index})


def frontier_data(
    plan: FrequencyPlan, shown: Sequence[int], measured: PerPipeline | None
) -> dict[str, object]:
    """Time, energy and bound of the shown plans, and where the job was measured."""
    plans, rows = plan.of, np.asarray(shown)
    baseline = plans.baseline.iteration_time_s, plans.baseline.energy_j
    return {
        "plans": len(plans),
        "plan": list(shown),
        "chosen": list(shown).index(plan.index),
        "time": rounded(plans.iteration_time_s[rows]),
        "energy": rounded(plans.energy_j[rows]),
        "bound": rounded(plans.lower_bound_j[rows]),
        "baseline": rounded(baseline),
        "measured": [] if measured is None else [rounded(measured.baseline), rounded(measured.perseus)],
    }


def kinds_of(plans: PlanSet) -> list[Kind]:
    """Which kinds have clocks, in the order in which they are declared."""
    present = {kind for _, kind in plans.options}
    return [kind for kind in Kind if kind in present]


def clocks_mhz(plans: PlanSet, shown: Sequence[int]) -> NDArray[np.uint16]:
    """Return the clocks, means over their work; 0 where an order does not run that microbatch.

    Shape: [plans shown, kinds x model stages, microbatches].
    """
    kinds, stages = kinds_of(plans), plans.schedule.stages
    computations = plans.computations()
    microbatches = 1 + max(one.microbatch for one in computations)
    clocks = np.zeros((len(shown), len(kinds) * stages, microbatches), np.uint16)
    rows = np.asarray(shown)
    for column, one in enumerate(computations):
        options = plans.options[one.stage, one.kind]
        mhz = np.array([options.mean_mhz(option) for option in range(len(options.time_s))])
        place = kinds.index(one.kind) * stages + one.stage
        clocks[:, place, one.microbatch] = np.rint(plans.blended(column, mhz)[rows])
    return clocks


def clocks_data(plans: PlanSet, shown: Sequence[int]) -> dict[str, object]:
    """The clocks of every shown plan, as differences from one plan to the next."""
    clocks = clocks_mhz(plans, shown)
    differences = clocks.copy()
    differences[1:] -= clocks[:-1]
    rows = [
        [kind.words, f"stage {stage}", stage]
        for kind in kinds_of(plans)
        for stage in range(plans.schedule.stages)
    ]
    used = clocks[clocks > 0]
    return {
        "rows": rows,
        "microbatches": clocks.shape[2],
        "low": int(used.min()),
        "high": int(used.max()),
        "differences": packed(differences, "u2"),
    }


def profile_data(profile: Profile) -> dict[str, object]:
    """A row of points for every kind of every stage: MHz, s, J and their standard errors."""
    stages = []
    for stage in range(profile.stages):
        kinds = sorted(
            (kind for s, kind in profile.points if s == stage), key=lambda kind: kind.value, reverse=True
        )
        rows = [
            {
                "words": kind.words,
                "points": [
                    [one.clock_mhz, *rounded([one.time_s, one.energy_j, one.time_se_s, one.energy_se_j], 6)]
                    for one in profile.of(stage, kind)
                ],
            }
            for kind in kinds
        ]
        stages.append(
            {"stage": stage, "kinds": sorted(rows, key=lambda row: str(row["words"]), reverse=True)}
        )
    return {"stages": stages}


def timeline_data(
    timelines: Sequence[RecordedIteration], critical: Mapping[str, Sequence[Instruction]]
) -> dict[str, object]:
    """Every box of every timeline, and the powers of the palest and the strongest colour."""
    kinds = list(Kind)
    waiting_w = [one.blocking_power_w for one in timelines]
    working_w = [span.power_w for one in timelines for span in one.spans if span.power_w is not None]
    return {
        "kinds": [
            {"letter": kind.value, "words": kind.words, "computes": kind.is_computation} for kind in kinds
        ],
        "low": min(waiting_w + working_w),
        "high": max(waiting_w + working_w),
        "panels": [_panel(one, kinds, frozenset(critical.get(one.name, ()))) for one in timelines],
    }


def _panel(
    timeline: RecordedIteration, kinds: Sequence[Kind], critical: frozenset[Instruction]
) -> dict[str, object]:
    rows = lanes(timeline)
    spans = [(place, span) for place, lane in enumerate(rows) for span in lane.spans]
    columns: list[tuple[str, str, Callable[[int, Span], float]]] = [
        ("lane", "u2", lambda place, _: place),
        ("kind", "u1", lambda _, span: kinds.index(span.instruction.kind)),
        ("stage", "u2", lambda _, span: span.instruction.stage),
        ("microbatch", "u4", lambda _, span: span.instruction.microbatch),
        ("start", "f4", lambda _, span: span.start_s),
        ("duration", "f4", lambda _, span: span.duration_s),
        ("mhz", "u4", lambda _, span: span.clock_mhz or 0),
        ("power", "f4", lambda _, span: span.power_w or 0.0),
        ("critical", "u1", lambda _, span: span.instruction in critical),
    ]
    return {
        "name": panel_name(timeline),
        "end": timeline.iteration_time_s,
        "joules": energy_j(timeline),
        "waiting_w": timeline.blocking_power_w,
        "lanes": [lane.name for lane in rows],
        **{
            column: packed([field(place, span) for place, span in spans], packing)
            for column, packing, field in columns
        },
    }


def course_data(courses: Sequence[Course]) -> dict[str, object]:
    """Iteration time, power and requested clock over the run, a dot per sample."""
    with_clocks = all(one.clock_mhz is not None for one in courses)
    return {
        "across": "iteration",
        "panels": [
            "iteration time, s",
            "power of all GPUs, W",
            *(["mean requested clock, MHz"] if with_clocks else []),
        ],
        "series": [
            {
                "name": SIDE_NAMES[one.side],
                "side": "before" if one.side == "baseline" else "after",
                "points": True,
                "x": list(one.iteration),
                "y": [
                    rounded(one.time_s),
                    rounded(one.power_w),
                    *([[round(one.clock_mhz or 0.0)] * len(one.iteration)] if with_clocks else []),
                ],
            }
            for one in courses
        ],
    }
