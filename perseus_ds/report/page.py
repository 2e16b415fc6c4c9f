"""Write the report: one self-contained page, its figures drawn by its own script, and the trace beside it.

`write_report` is the entry point. A section is a dict for the template: words, figures, a table. The numbers
of a figure go into ``data`` under its name, columns packed; the script draws them at the width that there is.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from perseus_ds import __version__
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.plan.select import count_of, gap_in_words
from perseus_ds.profile import Profile, read_profile
from perseus_ds.report.figures import (
    EnergyPrices,
    Figures,
    compare_measured_expected,
    event_row,
    fact_rows,
    figures,
    gpu_rows,
    headline,
    per_pipeline,
    plan_vs_expected_note,
    straggler_rows,
)
from perseus_ds.report.read import RunData, short
from perseus_ds.report.timeline import energy_j, panel_name, rank_rows, write_trace
from perseus_ds.run_directory.paths import write_whole
from perseus_ds.run_directory.records import RecordedIteration
from perseus_ds.schedule import Instruction, Kind

MAX_LINES = 500
"""Of events, and of stragglers, on a page; the file has all."""
MAX_PLANS = 300
MAX_CELLS = 1_000_000
"""Of the clocks of all shown plans together: a few hundred kilobytes once compressed."""
MAX_SPANS = 60_000
_HINT = "Point at any figure for its numbers, or reach it with the Tab key and use the arrow keys."
_TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32}
Section = dict[str, object]
Data = dict[str, Any]


def write_report(
    contents: RunData, found: Figures, *, page: Path | None = None, prices: EnergyPrices | None = None
) -> list[Path]:
    """Write ``report.html`` and the trace beside it; return their paths, the page first.

    Parts that are missing are named on the page, with the reason.

    Raises:
        OSError: the report cannot be written there.
    """
    target = contents.run_dir / "report.html" if page is None else page
    written = [target]
    if contents.timelines:
        path = target.parent / "trace.json"
        written.append(write_trace(contents.timelines, path, critical=contents.critical_paths()))
    trace = written[1].name if len(written) > 1 else ""
    write_whole(target, page_of(contents, found, prices=prices, trace=trace))
    return written


def write_profile_page(profile: Path, *, page: Path | None = None) -> Path:
    """Write the page of a profile alone, ours or the CSV of Zeus; return its path.

    Raises:
        ProfileError: it cannot be read.
        OSError: the page cannot be written there.
    """
    contents = RunData(profile.parent, read_profile(profile), None, None, (), (), ())
    target = profile.with_suffix(".html") if page is None else page
    write_whole(target, page_of(contents, figures(contents)))
    return target


def page_of(contents: RunData, found: Figures, *, prices: EnergyPrices | None = None, trace: str = "") -> str:
    """Assemble the page from whatever is there; ``trace`` is the trace file beside it."""
    data: Data = {}
    sections = [
        *_savings(contents, found, prices or EnergyPrices()),
        *_frontier(contents, data),
        *_iteration(contents, data, trace),
        *_gpus(contents, found),
        *profile_sections(contents, data),
        *_stragglers(contents),
    ]
    return _template().render(
        title=headline(found),
        simulated=found.simulated,
        job=found.job,
        head=list(_head(contents)),
        cards=list(_cards(contents, found)),
        sentences=[
            *filter(None, (compare_measured_expected(contents, found), plan_vs_expected_note(found))),
            *([] if found.gap_pct is None else [f"The plan is {gap_in_words(found.gap_pct)}."]),
        ],
        notes=[f"{part.file} is not shown: {part.why}" for part in contents.missing],
        hint=_HINT if data else "",
        sections=sections,
        details=list(_details(contents)),
        style=Markup(_file("report.css")),  # noqa: S704  # ours
        script=Markup(_file("report.js")),  # noqa: S704  # ours
        data=Markup(as_script(data)),  # noqa: S704  # nothing in it ends the element
    )


@cache
def _file(name: str) -> str:
    return files("perseus_ds.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html.j2"))


def as_script(content: object) -> str:
    """Write JSON that may stand inside a script element: nothing in it ends the element."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def pack(values: ArrayLike, kind: str) -> dict[str, str]:
    """Pack a column, or a table row by row, as little-endian numbers of ``kind`` (u1, u2, u4 or f4).

    They are compressed, in base64; the page's own script unpacks them.
    """
    column = np.ascontiguousarray(np.asarray(values), dtype=np.dtype(_TYPES[kind]).newbyteorder("<"))
    return {"as": kind, "packed": base64.b64encode(zlib.compress(column.tobytes(), 9)).decode()}


def round_all(values: ArrayLike, digits: int = 7) -> list[float]:
    """Return numbers as short as a reader needs them."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).ravel().tolist()]


def _section(heading: str, **parts: object) -> Section:
    """Return a part of the page: words, figures, a table (``header``, ``rows``), a link."""
    blank = dict.fromkeys(("words", "live", "figures", "header", "rows", "link", "half"))
    return {"heading": heading, "numbers": 1, **blank, **parts}


def _figure(name: str, caption: str, *, alt: str, legend: object = (), hint: str = "") -> Section:
    """Return the frame of a figure that the script draws; ``alt`` is for those who cannot see it."""
    return {"id": name, "caption": caption, "alt": alt, "legend": legend, "hint": hint}


def _head(contents: RunData) -> Iterator[tuple[str, str]]:
    attached, fingerprint = contents.attached, contents.fingerprint
    times = [str(event["time"]) for event in contents.events if event.get("time")]
    if times:
        yield "started", f"{times[0][:10]} {times[0][11:16]} UTC"
        yield "last event", f"{times[-1][:10]} {times[-1][11:16]} UTC"
    for name, key in (("host of rank 0", "host"), ("mode", "mode"), ("device", "device"), ("run", "run")):
        if attached.get(key):
            yield name, str(attached[key])
    yield "folder", str(contents.run_dir)
    for name, key in (("GPU", "gpu"), ("driver", "driver"), ("torch", "torch"), ("DeepSpeed", "deepspeed")):
        if fingerprint.get(key):
            yield name, fingerprint[key]
    version = str(attached.get("version") or "unknown")
    yield "perseus_ds", version if version == __version__ else f"{version}, page by {__version__}"
    if contents.earlier_runs:
        yield "earlier runs here", f"{contents.earlier_runs}, not shown (events.jsonl has them)"


def _cards(contents: RunData, found: Figures) -> Iterator[dict[str, str]]:
    if contents.summary is not None and (saving := found.measured):
        kwh = next(iter(EnergyPrices().per_day(contents.summary).values()))
        for value, words in (
            (saving.energy, f"energy saved, measured ({saving.source})"),
            (kwh, f"saved per day of training ({found.scope})"),
            (saving.time, "iteration time, measured"),
        ):
            yield {"kind": "measured", "value": value, "words": words}
    if saving := found.predicted:
        words = f"energy saved, expected from the profile ({saving.source})"
        yield {"kind": "predicted", "value": saving.energy, "words": words}


def _savings(contents: RunData, found: Figures, prices: EnergyPrices) -> Iterator[Section]:
    if contents.summary is None:
        return
    where = " on a simulated GPU" if found.simulated else ""
    header = [found.scope, "default clocks", "the plan", "difference"]
    yield _section(f"Measured{where}", header=header, rows=[row.cells for row in found.rows], half=True)
    saved_j = contents.summary.baseline.energy_j - contents.summary.perseus.energy_j
    rows = [
        ["energy per iteration", f"{short(saved_j)} J"],
        *map(list, prices.per_day(contents.summary).items()),
    ]
    header = [f"the whole job saves ({found.scope})", ""]
    yield _section("What the saving is worth", header=header, rows=rows, half=True)


def sampled_plans(plan: FrequencyPlan) -> list[int]:
    """Return plans evenly over the frontier, the job's own, the fastest and the slowest among them."""
    number, cells = len(plan.of), len(plan.of.computations())
    most = max(8, min(MAX_PLANS, MAX_CELLS // max(1, cells)))
    even = np.linspace(0, number - 1, min(number, most)).round().astype(int).tolist()
    return sorted({*even, plan.index})


def _frontier(contents: RunData, data: Data) -> Iterator[Section]:
    plan = contents.chosen
    if plan is None:
        return
    plans, sampled = plan.of, sampled_plans(plan)
    measured = [] if contents.summary is None else per_pipeline(contents.summary, plans)
    rows, baseline = np.asarray(sampled), plans.baseline
    data["frontier"] = {
        "plans": len(plans),
        "plan": sampled,
        "chosen": sampled.index(plan.index),
        "time": round_all(plans.iteration_time_s[rows]),
        "energy": round_all(plans.energy_j[rows]),
        "bound": round_all(plans.lower_bound_j[rows]),
        "baseline": round_all((baseline.iteration_time_s, baseline.energy_j)),
        "measured": [round_all(point) for point in measured],
    }
    legend = [
        ("accent line", "plans on real clocks"),
        ("warn line", "proved bound: no plan as fast needs less"),
        ("before", "all clocks at maximum"),
        *([("ring", "measured, square before, circle at the plan")] if measured else []),
    ]
    ends = [f"{short(plans.iteration_time_s[end])} s and {short(plans.energy_j[end])} J" for end in (0, -1)]
    alt = (
        f"Energy against iteration time of {len(plans)} plans, from {ends[0]} to {ends[1]}. All clocks at"
        f" maximum: {short(baseline.iteration_time_s)} s and {short(baseline.energy_j)} J. The job runs plan"
        f" {plan.index}: {plan.slowdown_pct:+z.2f} % time, {plan.saving_pct:.1f} % energy saved,"
        f" {gap_in_words(float(plans.gap_pct[plan.index]))}."
    )
    caption = f"A point is a plan ({len(sampled)} of {len(plans)} shown). Choose one to see its clocks below."
    hint = "Arrow keys move along the frontier and choose; Home and End go to its ends."
    size = count_of(plans.schedule.microbatches, "microbatch", "es")
    yield _section(
        f"The frontier: energy against time, {size}",
        figures=[_figure("frontier", caption, alt=alt, legend=legend, hint=hint)],
    )
    yield _clocks(plan, sampled, data)


def _kinds(plans: PlanSet) -> list[Kind]:
    return [kind for kind in Kind if any(own is kind for _, own in plans.options)]


def clocks_mhz(plans: PlanSet, sampled: Sequence[int]) -> NDArray[np.uint16]:
    """Return the clocks, means over their work; 0 where an order does not run that microbatch.

    Shape: [plans sampled, kinds x model stages, microbatches].
    """
    kinds, stages = _kinds(plans), plans.schedule.stages
    computations = plans.computations()
    microbatches = 1 + max(one.microbatch for one in computations)
    clocks = np.zeros((len(sampled), len(kinds) * stages, microbatches), np.uint16)
    rows = np.asarray(sampled)
    for column, one in enumerate(computations):
        options = plans.options[one.stage, one.kind]
        mhz = np.array([options.mean_mhz(option) for option in range(len(options.time_s))])
        place = kinds.index(one.kind) * stages + one.stage
        clocks[:, place, one.microbatch] = np.rint(plans.blend(column, mhz)[rows])
    return clocks


def _clocks(plan: FrequencyPlan, sampled: Sequence[int], data: Data) -> Section:
    """Show the clocks of the chosen plan; ``data`` has every sampled plan, as differences."""
    plans, stages = plan.of, range(plan.of.schedule.stages)
    clocks = clocks_mhz(plans, sampled)
    differences = clocks.copy()
    differences[1:] -= clocks[:-1]
    used = clocks[clocks > 0]
    low, high = int(used.min()), int(used.max())
    data["clocks"] = {
        "rows": [[kind.words, f"stage {stage}", stage] for kind in _kinds(plans) for stage in stages],
        "microbatches": clocks.shape[2],
        "low": low,
        "high": high,
        "differences": pack(differences, "u2"),
    }
    own = clocks[list(sampled).index(plan.index)].astype(float)
    own[own == 0] = np.nan
    means = [f"stage {stage} {np.nanmean(own[stage :: len(stages)]):.0f}" for stage in stages[:16]]
    alt = (
        f"Clocks of plan {plan.index}, {np.nanmin(own):.0f} to {np.nanmax(own):.0f} MHz, a row per stage and"
        f" kind, a column per microbatch. Means in MHz: {', '.join(means)}{' and more' * (len(stages) > 16)}."  # noqa: PLR2004
    )
    caption = "A row per stage and kind, a column per microbatch. Neighbours at one clock are one box."
    legend = [("ramp", (f"{low} MHz", f"{high} MHz"))]
    figure = _figure("clocks", caption, alt=alt, legend=legend)
    return _section("Clocks of the chosen plan", live="chosen-plan", figures=[figure])


def _iteration(contents: RunData, data: Data, trace: str) -> Iterator[Section]:
    timelines = contents.timelines
    if not timelines or sum(len(one.spans) for one in timelines) > MAX_SPANS:
        return
    data["timeline"] = drawn = timeline_data(timelines, contents.critical_paths())
    legend = [
        ("ramp", (f"{drawn['low']:.0f} W", f"{drawn['high']:.0f} W mean power")),
        ("ink", "dark foot: the critical path"),
    ]
    waits_pct = [
        100.0 * np.mean([row.idle_s for row in rank_rows(one)]) / one.iteration_time_s for one in timelines
    ]
    alt = "One iteration on a time axis. " + " ".join(
        f"{panel_name(one)}: {short(one.iteration_time_s)} s, {short(energy_j(one))} J,"
        f" GPUs wait {waits:.0f} % of the time."
        for one, waits in zip(timelines, waits_pct, strict=True)
    )
    caption = (
        "Colour is mean power. Tall boxes are backward, lower ones forward; the low strip is waiting."
        " Durations are measured, places follow from the schedule."
    )
    figure = _figure("timeline", caption, alt=alt, legend=legend)
    yield _section("One iteration, before and after", figures=[figure], link=trace or None)


def timeline_data(
    timelines: Sequence[RecordedIteration], critical: Mapping[str, Sequence[Instruction]]
) -> Data:
    """Return every box of every timeline, and the powers of the palest and the strongest colour."""
    kinds = list(Kind)
    powers_w = [one.blocking_power_w for one in timelines]
    powers_w += [span.power_w for one in timelines for span in one.spans if span.power_w is not None]
    return {
        "kinds": [
            {"letter": kind.value, "words": kind.words, "computes": kind.is_computation} for kind in kinds
        ],
        "low": min(powers_w),
        "high": max(powers_w),
        "panels": [_panel(one, kinds, frozenset(critical.get(one.name, ()))) for one in timelines],
    }


def _panel(timeline: RecordedIteration, kinds: Sequence[Kind], critical: frozenset[Instruction]) -> Data:
    rows = rank_rows(timeline)
    spans = [(place, span) for place, lane in enumerate(rows) for span in lane.spans]
    columns: list[tuple[str, str, Sequence[float]]] = [
        ("lane", "u2", [place for place, _ in spans]),
        ("kind", "u1", [kinds.index(span.instruction.kind) for _, span in spans]),
        ("stage", "u2", [span.instruction.stage for _, span in spans]),
        ("microbatch", "u4", [span.instruction.microbatch for _, span in spans]),
        ("start", "f4", [span.start_s for _, span in spans]),
        ("duration", "f4", [span.duration_s for _, span in spans]),
        ("mhz", "u4", [span.clock_mhz or 0 for _, span in spans]),
        ("power", "f4", [span.power_w or 0.0 for _, span in spans]),
        ("critical", "u1", [span.instruction in critical for _, span in spans]),
    ]
    return {
        "name": panel_name(timeline),
        "end": timeline.iteration_time_s,
        "joules": energy_j(timeline),
        "waiting_w": timeline.blocking_power_w,
        "lanes": [lane.name for lane in rows],
        **{column: pack(values, packing) for column, packing, values in columns},
    }


def _gpus(contents: RunData, found: Figures) -> Iterator[Section]:
    header, rows = gpu_rows(contents)
    if rows:
        yield _section(
            "Each GPU",
            words=f"Measured energy and time of one iteration ({found.scope}). Clocks are the requested ones,"
            " means over the time computed. A missed change came late or was overtaken by the next one.",
            header=header,
            rows=rows,
        )


def profile_sections(contents: RunData, data: Data) -> Iterator[Section]:
    """Yield the curves of time and energy over the clock."""
    profile, plan = contents.profile, contents.chosen
    if profile is None:
        return
    data["profile"] = {"stages": [_stage_data(profile, stage) for stage in range(profile.stages)]}
    kinds = sorted({kind.words for _, kind in profile.points}, reverse=True)
    legend = [("before" if place % 2 else "accent", name) for place, name in enumerate(kinds)]
    if plan is not None:
        legend.append(("ring", "clocks that the chosen plan uses"))
    points = list(profile.points.values())
    slower = [max(p.time_s for p in row) / min(p.time_s for p in row) for row in points]
    leaner = [100.0 * min(p.energy_j for p in row) / max(p.energy_j for p in row) for row in points]
    alt = (
        f"Time and energy of {len(points)} kinds of computation at {max(map(len, points))} clocks. The lowest"
        f" clock takes {min(slower):.1f} to {max(slower):.1f} times as long as the highest. The leanest needs"
        f" {min(leaner):.0f} to {max(leaner):.0f} % of the energy of the most wasteful one."
    )
    caption = "Energy (J) against time (s) of every computation, a point per clock, with standard errors."
    figure = _figure("profile", caption, alt=alt, legend=legend)
    errors = [one.time_se_s or one.energy_se_j for own in points for one in own]
    left_out = [event.get("clocks_mhz") for event in contents.events if event.get("event") == "not_held"]
    words = "" if any(errors) else "This profile states no errors."
    lost = {clock for clocks in left_out if isinstance(clocks, list) for clock in clocks}
    if mhz := sorted((clock for clock in lost if isinstance(clock, int)), reverse=True):
        listed = ", ".join(map(str, mhz))
        words += f" Left out, since they did not hold under load: {listed} MHz."
    yield _section("The profile", words=words, figures=[figure])


def _stage_data(profile: Profile, stage: int) -> Data:
    """Return a row of points for every kind of a stage: MHz, s, J and their standard errors."""
    kinds = {
        kind.words: [
            [one.clock_mhz, *round_all([one.time_s, one.energy_j, one.time_se_s, one.energy_se_j], 6)]
            for one in profile.of(stage, kind)
        ]
        for own, kind in profile.points
        if own == stage
    }
    rows = [{"words": words, "points": kinds[words]} for words in sorted(kinds, reverse=True)]
    return {"stage": stage, "kinds": rows}


def _stragglers(contents: RunData) -> Iterator[Section]:
    if rows := straggler_rows(contents.events):
        header = ["from", "to", "slow replica", "iteration time of all", "changes"]
        yield _section(_last_of("Stragglers", len(rows)), header=header, rows=rows[-MAX_LINES:], numbers=99)


def _last_of(heading: str, number: int) -> str:
    """Name the part of a long list that the page has."""
    if number <= MAX_LINES:
        return heading
    return f"{heading}: the last {MAX_LINES} of {number}, all are in events.jsonl"


def _details(contents: RunData) -> Iterator[dict[str, object]]:
    events = [event_row(event) for event in contents.events[-MAX_LINES:]]
    facts = {} if contents.summary is None else contents.summary.facts
    for heading, header, rows in (
        (_last_of("Events", len(contents.events)), ["time (UTC)", "event", ""], events),
        ("The job that the plan is valid for", [], list(map(list, fact_rows(contents.fingerprint)))),
        ("Facts beside the measurement", [], list(map(list, fact_rows(facts)))),
    ):
        if rows:
            yield {"heading": heading, "header": header, "rows": rows}
