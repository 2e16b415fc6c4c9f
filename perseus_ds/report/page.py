"""The report of one run: the page's text, section by section."""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from perseus_ds import __version__
from perseus_ds.kernels import KernelPlan
from perseus_ds.plan import FrequencyPlan, PlanSet, certified
from perseus_ds.profile import Computation, Point, Profile, read_profile, smoothed
from perseus_ds.report.figures import (
    MOST_LINES,
    STRAGGLER_HEADER,
    Course,
    EnergyPrices,
    Figures,
    GpuRow,
    PerPipeline,
    courses,
    explanation,
    fact_rows,
    figures,
    gpu_rows,
    headline,
    journal_lines,
    per_pipeline,
    straggler_rows,
    why_not_as_planned,
    with_error,
    worth,
)
from perseus_ds.report.read import Contents, count, short, signed
from perseus_ds.report.timeline import (
    Causes,
    causes,
    causes_beside,
    clock_changes,
    energy_j,
    lanes,
    panel_name,
    write_trace,
)
from perseus_ds.run_directory import RecordedIteration, Span, write_whole
from perseus_ds.schedule import Instruction, Kind

# The template with what it is given: texts escaped, columns of numbers packed, style, script.

_NOTHING: dict[str, object] = {
    "simulated": False,
    "job": "",
    "head": [],
    "cards": [],
    "sentences": [],
    "notes": [],
    "hint": "",
    "sections": [],
    "details": [],
}
_TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32}


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html.j2"))


def render_page(*, title: str, data: object, **parts: object) -> str:
    """Return one self-contained page; ``data`` is what its script draws."""
    own = {"style": Markup(_file("report.css")), "script": Markup(_file("report.js"))}  # noqa: S704  # ours
    own["data"] = Markup(as_script(data))  # noqa: S704  # nothing in it ends the element
    return _template().render(title=title, **_NOTHING | parts | own)


def section(heading: str, **parts: object) -> dict[str, object]:
    """Return a part of the page: words, bars, figures, a table (``header``, ``rows``), a link."""
    blank = dict.fromkeys(("words", "live", "bars", "figures", "header", "rows", "link", "half"))
    return {"heading": heading, "numbers": 99, **blank, **parts}


def figure(name: str, caption: str, *, alt: str, legend: object = (), hint: str = "") -> dict[str, object]:
    """Return the frame of a figure that the script draws."""
    return {"id": name, "caption": caption, "alt": alt, "legend": legend, "hint": hint}


def packed(values: ArrayLike, kind: str) -> dict[str, str]:
    """Pack a column, or a table row by row, as little-endian numbers of ``kind`` (u1, u2, u4 or f4).

    They are compressed, in base64; the page's own script unpacks them.
    """
    column = np.ascontiguousarray(np.asarray(values), dtype=np.dtype(_TYPES[kind]).newbyteorder("<"))
    return {"as": kind, "packed": base64.b64encode(zlib.compress(column.tobytes(), 9)).decode()}


def as_script(content: object) -> str:
    """Write JSON that may stand inside a script element: nothing in it ends the element."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def rounded(values: ArrayLike, digits: int = 7) -> list[float]:
    """Numbers as short as a reader needs them."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).ravel().tolist()]


# What the page's script draws: timelines, frontier, clocks of every shown plan, profile, courses.

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


# The profile on the page: curves with errors, what was left out and why, predicted and measured.

_UNKNOWN = "-"
_COLUMNS = (
    "Errors are the largest of a curve. Off curve is the largest distance from a smooth curve through all"
    " points, in standard errors. A clock is never worth it where another one is as fast and needs no more"
    " energy."
)


def profile_sections(contents: Contents, data: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield the curves, a row for each of them, and predicted against measured durations."""
    profile, plan = contents.profile, contents.chosen
    if profile is None:
        return
    data["profile"] = profile_data(profile)
    words = sorted({kind.words for _, kind in profile.points}, reverse=True)
    legend = [("before" if place % 2 else "accent", name) for place, name in enumerate(words)]
    if plan is not None:
        legend.append(("ring", "clocks that the chosen plan uses"))
    caption = "Energy (J) against time (s) of every computation, a point per clock, with standard errors."
    drawn = figure("profile", caption, alt=of_profile(profile), legend=legend)
    yield section("The profile", figures=[drawn])
    yield section(
        "Each curve of the profile",
        words=_words(profile, contents),
        header=[
            "",
            "clocks, MHz",
            "the plan uses",
            "never worth it",
            "error s",
            "error J",
            "off curve",
            "°C",
        ],
        rows=_rows(profile, plan),
        numbers=1,
    )
    if plan is not None and (rows := _against(contents, plan)):
        yield section(
            "Predicted and measured durations",
            words="Mean durations of one iteration at the plan: as its profile predicts, and as recorded.",
            header=["", "predicted, s", "measured, s", "difference"],
            rows=rows,
            numbers=1,
        )


def _words(profile: Profile, contents: Contents) -> str:
    """What the columns are, and what of the sweep is not in the profile, with the reason."""
    told = [_COLUMNS]
    if not _states_errors(profile):
        told.append("This profile states no errors.")
    lost = sorted(
        {
            clock
            for event in contents.events
            if event.get("event") == "not_held"
            for clock in _clocks(event.get("clocks_mhz"))
        },
        reverse=True,
    )
    if lost:
        told.append(f"Left out, since they did not hold under load: {', '.join(map(str, lost))} MHz.")
    short_windows = sum(event.get("event") == "window_too_short" for event in contents.events)
    if short_windows:
        again = "window was" if short_windows == 1 else "windows were"
        told.append(f"{short_windows} {again} too short and measured again.")
    told += _left_out(contents)
    return " ".join(told)


def _left_out(contents: Contents) -> list[str]:
    """How many iterations counted for nothing in the sweep, and why."""
    profiled = next((one for one in reversed(contents.events) if one.get("event") == "profiled"), {})
    reasons = {
        "first_iterations": "first ones",
        "after_something_else": "after an evaluation or a checkpoint",
        "void_or_skipped": "without marks or optimizer step",
    }
    counts = {words: profiled.get(key) for key, words in reasons.items()}
    left = [f"{count} {words}" for words, count in counts.items() if isinstance(count, int) and count]
    return [f"Iterations left out of the sweep: {', '.join(left)}."] if left else []


def _clocks(value: object) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []


def _states_errors(profile: Profile) -> bool:
    return any(one.time_se_s or one.energy_se_j for points in profile.points.values() for one in points)


def _rows(profile: Profile, plan: FrequencyPlan | None) -> list[list[str]]:
    curves = smoothed(profile) if _states_errors(profile) else profile
    used = {} if plan is None else _used(plan)
    return [
        [
            f"stage {stage} {kind.words}",
            _range([one.clock_mhz for one in points]),
            _range(used.get((stage, kind), [])),
            _range(_beaten(points)),
            _percent([one.time_se_s / one.time_s for one in points]),
            _percent([one.energy_se_j / one.energy_j for one in points]),
            _off(points, curves.of(stage, kind)),
            _temperatures(points),
        ]
        for stage, kind in sorted(profile.points, key=lambda key: (key[0], key[1].value))
        for points in [profile.of(stage, kind)]
    ]


def _used(plan: FrequencyPlan) -> dict[Computation, list[int]]:
    """The clocks that a plan uses of each computation, timelines with all of theirs."""
    found: dict[Computation, set[int]] = defaultdict(set)
    for one, portions in plan.portions().items():
        options = plan.of.options[one.stage, one.kind]
        for portion in portions:
            found[one.stage, one.kind] |= {segment.clock_mhz for segment in options.segments(portion.option)}
    return {key: list(clocks) for key, clocks in found.items()}


def _beaten(points: Sequence[Point]) -> list[int]:
    """Clocks at which another one is as fast and needs no more."""
    return [
        one.clock_mhz
        for one in points
        if any(
            other.time_s <= one.time_s and other.energy_j <= one.energy_j and other.clock_mhz != one.clock_mhz
            for other in points
        )
    ]


def _range(clocks_mhz: Sequence[int]) -> str:
    if not clocks_mhz:
        return _UNKNOWN
    low, high = min(clocks_mhz), max(clocks_mhz)
    return str(low) if low == high else f"{len(set(clocks_mhz))}: {low} to {high}"


def _percent(shares: Sequence[float]) -> str:
    return f"{100.0 * max(shares):.2f} %" if max(shares) > 0.0 else _UNKNOWN


def _off(points: Sequence[Point], curve: Sequence[Point]) -> str:
    """The largest residual of times and energies, in standard errors of the point; unknown without any."""
    at = {one.clock_mhz: one for one in curve}
    found = [
        abs(value - on) / error
        for one in points
        for other in [at[one.clock_mhz]]
        for value, on, error in (
            (one.time_s, other.time_s, one.time_se_s),
            (one.energy_j, other.energy_j, one.energy_se_j),
        )
        if error > 0.0
    ]
    return f"{max(found):.1f}" if found else _UNKNOWN


def _temperatures(points: Sequence[Point]) -> str:
    """How warm GPUs were over all clocks, where the profile has it."""
    read = [getattr(one, "temperature_c", None) for one in points]
    known = [float(one) for one in read if one is not None]
    if not known:
        return _UNKNOWN
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return low if low == high else f"{low} to {high}"


def _against(contents: Contents, plan: FrequencyPlan) -> list[list[str]]:
    """A row for each (stage, kind): what the plan predicts of its durations, and what was recorded."""
    recorded = contents.timelines.get("perseus")
    if recorded is None:
        return []
    columns = {one: column for column, one in enumerate(plan.of.computations())}
    sums: dict[tuple[int, Kind], list[tuple[float, float]]] = defaultdict(list)
    for span in recorded.spans:
        one = span.instruction
        if one in columns:
            options = plan.of.options[one.stage, one.kind]
            predicted_s = float(plan.of.blended(columns[one], options.time_s)[plan.index])
            sums[one.stage, one.kind].append((predicted_s, span.duration_s))
    rows = []
    for (stage, kind), pairs in sorted(sums.items(), key=lambda item: (item[0][0], item[0][1].value)):
        predicted_s, measured_s = np.mean(pairs, axis=0).tolist()
        difference = f"{signed(100.0 * (measured_s / predicted_s - 1.0), decimals=2)} %"
        rows.append([f"stage {stage} {kind.words}", short(predicted_s), short(measured_s), difference])
    return rows


_RAMP = "ramp"
_HINT = "Point at any figure for its numbers, or reach it with the Tab key and use the arrow keys."


def page_of(
    contents: Contents, found: Figures, *, prices: EnergyPrices | None = None, trace: str = ""
) -> str:
    """Assemble the page from whatever is there; ``trace`` is the trace file beside it."""
    data: dict[str, object] = {}
    sections = [
        *_table_of_figures(contents, found, prices or EnergyPrices()),
        *_over_the_run(contents, data),
        *_iteration(contents, data, trace),
        *_causes(contents),
        *_frontier(contents, data),
        *_gpus(contents),
        *profile_sections(contents, data),
        *_stragglers(contents),
    ]
    return render_page(
        title=headline(found),
        data=data,
        simulated=found.simulated,
        job=found.job,
        head=list(_head(contents)),
        cards=list(_cards(found)),
        sentences=[text for text in (explanation(contents, found), why_not_as_planned(found)) if text],
        notes=[f"{part.file} is not shown: {part.why}" for part in contents.missing],
        hint=_HINT if data else "",
        sections=sections,
        details=list(_details(contents)),
    )


def _head(contents: Contents) -> Iterator[tuple[str, str]]:
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
    version = str(attached.get("version") or "")
    yield (
        "perseus_ds",
        version if version == __version__ else f"{version or 'unknown'}, page by {__version__}",
    )
    if contents.earlier_runs:
        yield "earlier runs here", f"{contents.earlier_runs}, not shown (events.jsonl has them)"


def _cards(found: Figures) -> Iterator[dict[str, str]]:
    if saving := found.measured:
        value = with_error(saving.saving_pct, saving.within_pct)
        yield {"kind": "measured", "value": value, "words": f"energy saved, measured ({saving.source})"}
        value = with_error(saving.slowdown_pct, saving.slowdown_within_pct, decimals=2, sign=True)
        yield {"kind": "measured", "value": value, "words": "iteration time, measured"}
    if saving := found.predicted:
        value = with_error(saving.saving_pct, saving.within_pct)
        words = f"energy saved, expected from the profile ({saving.source})"
        yield {"kind": "predicted", "value": value, "words": words}
    if found.gap_pct is not None:
        gap = f"{max(0.0, found.gap_pct):.3f} %"
        yield {
            "kind": "predicted",
            "value": gap,
            "words": "above the proved optimum of this profile, at most",
        }


def _table_of_figures(
    contents: Contents, found: Figures, prices: EnergyPrices
) -> Iterator[dict[str, object]]:
    if contents.summary is None:
        return
    rows = [
        [
            f"{row.name}, {row.unit}",
            short(row.baseline, digits=5),
            short(row.perseus, digits=5),
            f"{signed(row.difference_pct, decimals=2)} %",
        ]
        for row in found.rows
    ]
    where = " on a simulated GPU" if found.simulated else ""
    header = ["all GPUs of the job", "default clocks", "the plan", "difference"]
    yield section(f"Measured{where}", header=header, rows=rows, numbers=1, half=True)
    value = worth(contents.summary, prices)
    building = "" if prices.pue in {None, 1.0} else f", the building's share with it (PUE {prices.pue:g})"
    saved = [
        ["energy per iteration", f"{short(value.per_iteration_j)} J"],
        [f"energy per day of training{building}", f"{short(value.per_day_kwh)} kWh"],
    ]
    if value.per_day_money is not None:
        saved.append(["money per day", f"{short(value.per_day_money)} at {prices.price_per_kwh:g} per kWh"])
    if value.per_day_kgco2 is not None:
        saved.append(["CO2 per day", f"{short(value.per_day_kgco2)} kg at {prices.gco2_per_kwh:g} g per kWh"])
    yield section(
        "What the saving is worth", header=["the whole job saves", ""], rows=saved, numbers=1, half=True
    )


def _over_the_run(contents: Contents, data: dict[str, object]) -> Iterator[dict[str, object]]:
    found = courses(contents)
    if not found:
        return
    data["courses"] = {"courses": course_data(found)}
    legend = [("before", "default clocks (warm-up and audits)"), ("accent", "the plan")]
    caption = (
        "A dot is the mean of neighbouring iterations. Power is that of all GPUs together; the clock is"
        " the requested"
        " one, the mean over the time computed."
    )
    drawn = figure("courses", caption, alt=of_courses(found), legend=legend)
    yield section("Over the run", figures=[drawn])


def _iteration(contents: Contents, data: dict[str, object], trace: str) -> Iterator[dict[str, object]]:
    timelines = contents.in_order()
    if not timelines or sum(len(one.spans) for one in timelines) > MOST_SPANS:
        return
    data["timeline"] = drawn = timeline_data(timelines, contents.critical_paths())
    legend = [
        (_RAMP, (f"{drawn['low']:.0f} W", f"{drawn['high']:.0f} W mean power")),
        ("ink", "dark foot: the critical path"),
    ]
    caption = (
        "Colour is mean power. Tall boxes are backward, lower ones forward; the low strip is waiting."
        " Durations are measured, places follow from the schedule."
    )
    part = figure("timeline", caption, alt=of_timelines(timelines), legend=legend)
    yield section("One iteration, before and after", figures=[part], link=trace or None)


_PARTS = (
    ("working_j", "c0", "computing"),
    ("fixed_j", "c1", "transfers, reduction, step"),
    ("bubbles_j", "c2", "waiting for other stages"),
    ("straggler_j", "c3", "waiting for the straggler"),
)
_NAMES = {"baseline": "default clocks", "perseus": "the plan"}


def _causes(contents: Contents) -> Iterator[dict[str, object]]:
    if not contents.timelines:
        return
    beside = [] if contents.plans is None else causes_beside(contents.plans, contents.events)
    found = [*map(causes, contents.in_order()), *beside]
    parts = [part for part in _PARTS if any(getattr(one, part[0]) for one in found)]
    changes = [f"{clock_changes(one):.1f} ({_NAMES.get(one.name, one.name)})" for one in contents.in_order()]
    words = f"One pipeline, one iteration. Changes of clock per iteration and GPU: {', '.join(changes)}."
    if beside:
        words += " The last two rows, as planned, last until the straggler arrives."
    yield section(
        "What the energy goes into",
        words=words,
        bars={"legend": [part[1:] for part in parts], "rows": _bars(found)},
        header=["J", *(part[2] for part in parts), "in all"],
        rows=[
            [
                _NAMES.get(one.name, one.name),
                *(_joules(getattr(one, part[0])) for part in parts),
                short(one.total_j),
            ]
            for one in found
        ],
        numbers=1,
    )


def _joules(energy_j: float) -> str:
    return short(energy_j) if energy_j else "0"


def _bars(found: list[Causes]) -> list[dict[str, object]]:
    longest_j = max(one.total_j for one in found)
    return [
        {
            "name": f"{_NAMES.get(one.name, one.name)}: {short(one.total_j)} J",
            "parts": [
                (look, f"{100.0 * getattr(one, field) / longest_j:.2f}")
                for field, look, _ in _PARTS
                if getattr(one, field) > 0
            ],
        }
        for one in found
    ]


def _frontier(contents: Contents, data: dict[str, object]) -> Iterator[dict[str, object]]:
    plan = contents.chosen
    if plan is None:
        return
    measured = None if contents.summary is None else per_pipeline(contents.summary, plan.of)
    shown = shown_plans(plan)
    data["frontier"] = frontier_data(plan, shown, measured)
    data["clocks"] = drawn = clocks_data(plan.of, shown)
    legend = [
        ("accent line", "plans on real clocks"),
        ("warn line", "proved bound: no plan as fast needs less"),
        ("before", "all clocks at maximum"),
    ]
    if measured is not None:
        legend.append(("ring", "measured, square before, circle at the plan"))
    caption = (
        f"A point is a plan ({len(shown)} of {len(plan.of)} shown). Choose one, and its clocks stand below."
    )
    hint = "Arrow keys move along the frontier and choose; Home and End go to its ends."
    frontier = figure("frontier", caption, alt=of_frontier(plan), legend=legend, hint=hint)
    size = count(plan.of.schedule.microbatches, "microbatch", "es")
    yield section(f"The frontier: energy against time, {size}", figures=[frontier])
    caption = "A row per stage and kind, a column per microbatch. Neighbours at one clock are one box."
    ramp = [(_RAMP, (f"{drawn['low']} MHz", f"{drawn['high']} MHz"))]
    clocks = figure("clocks", caption, alt=of_clocks(plan), legend=ramp)
    yield section("Clocks of the chosen plan", live="chosen-plan", figures=[clocks])


def _gpus(contents: Contents) -> Iterator[dict[str, object]]:
    rows = gpu_rows(contents)
    if not rows:
        return
    header = [
        "",
        "J before",
        "J at the plan",
        "saved",
        "s before",
        "s at the plan",
        "MHz before",
        "MHz at the plan",
    ]
    warm = any(row.temperature_c is not None for row in rows)
    header += ["°C before", "°C at the plan"] if warm else []
    yield section(
        "Each GPU",
        words="Measured energy and time of one iteration. Clocks are the requested ones, means over the time"
        " computed. A missed change came late or was overtaken by the next one.",
        header=[*header, "changes", "missed"],
        rows=[_gpu_cells(row, warm=warm) for row in rows],
        numbers=1,
    )


def _gpu_cells(row: GpuRow, *, warm: bool) -> list[str]:
    clocks = ["-", "-"] if row.clock_mhz is None else [f"{mhz:.0f}" for mhz in row.clock_mhz]
    degrees = ["-", "-"] if row.temperature_c is None else [f"{one:.0f}" for one in row.temperature_c]
    return [
        row.name,
        *map(short, row.energy_j),
        f"{row.saving_pct:.1f} %",
        *map(short, row.time_s),
        *clocks,
        *(degrees if warm else []),
        str(row.changes),
        str(row.missed),
    ]


def _stragglers(contents: Contents) -> Iterator[dict[str, object]]:
    if rows := straggler_rows(contents.events):
        heading = _of_many("Stragglers", len(rows))
        yield section(heading, header=list(STRAGGLER_HEADER), rows=rows[-MOST_LINES:])


def _of_many(heading: str, number: int) -> str:
    """Name the part of a long list that the page has."""
    if number <= MOST_LINES:
        return heading
    return f"{heading}: the last {MOST_LINES} of {number}, all are in events.jsonl"


def _details(contents: Contents) -> Iterator[dict[str, object]]:
    if contents.events:
        last = contents.events[-MOST_LINES:]
        rows = [[line.time, line.event.replace("_", " "), line.facts] for line in journal_lines(last)]
        heading = _of_many("What happened", len(contents.events))
        yield {"heading": heading, "header": ["time (UTC)", "event", ""], "rows": rows}
    if contents.fingerprint:
        rows = list(map(list, fact_rows(contents.fingerprint)))
        yield {"heading": "The job that the plan is valid for", "header": [], "rows": rows}
    if contents.summary is not None:
        rows = list(map(list, fact_rows(contents.summary.facts)))
        yield {"heading": "Facts beside the measurement", "header": [], "rows": rows}


# A figure in words, with its numbers: for those who cannot see it.


def of_timelines(timelines: Sequence[RecordedIteration]) -> str:
    """Every iteration's time, energy and share of waiting."""
    return "One iteration on a time axis. " + " ".join(
        f"{panel_name(one)}: {short(one.iteration_time_s)} s, {short(energy_j(one))} J,"
        f" GPUs wait {_waiting_pct(one):.0f} % of the time."
        for one in timelines
    )


def _waiting_pct(timeline: RecordedIteration) -> float:
    rows = lanes(timeline)
    gaps_s = sum(gap.duration_s for lane in rows for gap in lane.gaps)
    return 100.0 * gaps_s / (timeline.iteration_time_s * max(1, len(rows)))


def of_frontier(plan: FrequencyPlan) -> str:
    """Its ends and the job's place on it."""
    plans = plan.of
    ends = [f"{short(plans.iteration_time_s[end])} s and {short(plans.energy_j[end])} J" for end in (0, -1)]
    return (
        f"Energy against iteration time of {len(plans)} plans, from {ends[0]} to {ends[1]}. All clocks"
        " at maximum:"
        f" {short(plans.baseline.iteration_time_s)} s and {short(plans.baseline.energy_j)} J. The job"
        " runs plan"
        f" {plan.index}: {signed(plan.slowdown_pct, decimals=2)} % time, {plan.saving_pct:.1f} % energy"
        " saved,"
        f" {certified(float(plans.gap_pct[plan.index]))}."
    )


def of_clocks(plan: FrequencyPlan) -> str:
    """The range of clocks, and each stage's mean."""
    clocks = clocks_mhz(plan.of, [plan.index])[0].astype(float)
    clocks[clocks == 0] = np.nan
    stages = plan.of.schedule.stages
    means = [np.nanmean(clocks[stage::stages]) for stage in range(stages)]
    shown = ", ".join(f"stage {stage} {mean:.0f}" for stage, mean in enumerate(means[:16]))
    return (
        f"Clocks of plan {plan.index}, {np.nanmin(clocks):.0f} to {np.nanmax(clocks):.0f} MHz, a row per"
        " stage and kind,"
        " a column per microbatch. Means in MHz:"
        f" {shown}{' and more' if stages > 16 else ''}."  # noqa: PLR2004
    )


def of_profile(profile: Profile) -> str:
    """How much was measured, and by how much clocks change time and energy."""
    points = list(profile.points.values())
    slower = [max(p.time_s for p in row) / min(p.time_s for p in row) for row in points]
    leaner = [min(p.energy_j for p in row) / max(p.energy_j for p in row) for row in points]
    return (
        f"Time and energy of {len(points)} kinds of computation at {max(map(len, points))} clocks. The"
        " lowest clock takes"
        f" {min(slower):.1f} to {max(slower):.1f} times as long as the highest. The leanest needs"
        f" {100 * min(leaner):.0f} to {100 * max(leaner):.0f} % of the energy of the most wasteful one."
    )


def of_courses(courses: Sequence[Course]) -> str:
    """Each side's range of times and powers."""
    return "Over the run. " + " ".join(
        f"{SIDE_NAMES[one.side]}: {len(one.iteration)} samples, iteration time {short(min(one.time_s))} to"
        f" {short(max(one.time_s))} s, power {short(min(one.power_w))} to {short(max(one.power_w))} W."
        for one in courses
    )


# An emulated job before and after: time and energy of every iteration, and the power over time.

_LOOKS = ("before", "after")
_MOST_BINS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One run: a value per iteration, and mean power per bin of time.

    Units: seconds, joules, watts.
    """

    name: str
    iteration_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    power_w: NDArray[np.float64]
    bin_s: float


def write_emulation(series: Sequence[Series], path: Path, *, subtitle: str) -> Path:
    """Write the page; return its path."""
    legend = [(look, one.name) for look, one in zip(("before", "accent"), series, strict=True)]
    told = " ".join(
        f"{one.name}: {short(float(one.iteration_s.mean()))} s and {short(float(one.energy_j.mean()))} J"
        " per iteration."
        for one in series
    )
    captions = {
        "iterations": "A line per run, a value per iteration.",
        "power": "Mean power of all GPUs together.",
    }
    write_whole(
        path,
        render_page(
            title="The job before and after, simulated",
            data={"courses": {"iterations": _iterations(series), "power": _power(series)}},
            simulated=True,
            job=subtitle,
            sentences=[told],
            sections=[
                section(
                    heading,
                    figures=[figure(name, captions[name], alt=f"{captions[name]} {told}", legend=legend)],
                )
                for name, heading in (("iterations", "Iterations"), ("power", "Power"))
            ],
        ),
    )
    return path


def _iterations(series: Sequence[Series]) -> dict[str, object]:
    rows = [
        {
            "name": one.name,
            "side": look,
            "points": False,
            "x": list(range(len(one.iteration_s))),
            "y": [rounded(one.iteration_s), rounded(one.energy_j / 1e3)],
        }
        for look, one in zip(_LOOKS, series, strict=True)
    ]
    return {"across": "iteration", "panels": ["iteration time, s", "energy, kJ"], "series": rows}


def _power(series: Sequence[Series]) -> dict[str, object]:
    rows = []
    for look, one in zip(_LOOKS, series, strict=True):
        join = max(1, -(-len(one.power_w) // _MOST_BINS))
        power_w = [one.power_w[at : at + join].mean() for at in range(0, len(one.power_w), join)]
        xs = rounded(one.bin_s * join * (np.arange(len(power_w)) + 0.5))
        rows.append(
            {
                "name": one.name,
                "side": look,
                "points": False,
                "x": xs,
                "y": [rounded(np.array(power_w) / 1e3)],
            }
        )
    return {"across": "time, s", "panels": ["power of the job, kW"], "series": rows}


# The kernel level at a glance: what each class wastes, and what switching latency leaves of the saving.

_MOST_CLASSES = 24
_BAR_NAMES = ("what it needs", "saved at no loss of time in all")


def write_kernels(plan: KernelPlan, path: Path, *, title: str, subtitle: str) -> Path:
    """Write the page; return its path."""
    latencies = [1e3 * one.latency_s for one in plan.left]
    left = {
        "name": "energy saved",
        "side": "after",
        "points": False,
        "x": rounded(latencies),
        "y": [_saved(plan)],
    }
    of = {"across": "switching latency, ms", "panels": ["energy saved, %"], "series": [left]}
    told = ", ".join(f"{ms:g} ms: {saved:.2f} %" for ms, saved in zip(latencies, _saved(plan), strict=True))
    write_whole(
        path,
        render_page(
            title=title,
            data={"courses": {"latencies": of}},
            job=subtitle,
            sections=[_classes(plan), section("What switching latency leaves", figures=[_latencies(told)])],
        ),
    )
    return path


def _saved(plan: KernelPlan) -> list[float]:
    return rounded([-one.energy_pct for one in plan.left])


def _latencies(told: str) -> dict[str, object]:
    caption = "Energy saved at no loss of time, against how long a change of clocks takes."
    return figure("latencies", caption, alt=f"{caption} {told}.")


def _classes(plan: KernelPlan) -> dict[str, object]:
    """The heaviest classes: their share of the iteration's energy, and what the strict choice saves of it."""
    rows = plan.classes[:_MOST_CLASSES]
    widest = max((row.energy_share_pct for row in rows), default=1.0)
    saved = {row.kernel: max(0.0, -row.energy_share_pct * row.energy_pct / 100.0) for row in rows}
    bars = [
        {
            "name": f"{row.kernel}, {row.pair}",
            "parts": [
                ("c0", f"{100.0 * (row.energy_share_pct - saved[row.kernel]) / widest:.2f}"),
                ("c2", f"{100.0 * saved[row.kernel] / widest:.2f}"),
            ],
        }
        for row in rows
    ]
    return section(
        "Kernel classes by energy",
        bars={"legend": list(zip(("c0", "c2"), _BAR_NAMES, strict=True)), "rows": bars},
        header=["class", "clocks", "energy, %", "of it saved, %"],
        rows=[
            [row.kernel, row.pair, f"{row.energy_share_pct:.2f}", f"{-row.energy_pct:.2f}"] for row in rows
        ],
        numbers=2,
    )


# Write a run directory's report, one page with the trace beside it.


def write_report(
    contents: Contents, found: Figures, *, page: Path | None = None, prices: EnergyPrices | None = None
) -> list[Path]:
    """Write ``report.html`` and the trace beside it; return their paths, the page first.

    Parts that are missing are named on the page, with the reason.

    Raises:
        OSError: the report cannot be written there.
    """
    # jinja2: not for who prints a table

    target = contents.run_dir / "report.html" if page is None else page
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = []
    if contents.timelines:
        path = target.parent / "trace.json"
        beside = [write_trace(contents.in_order(), path, critical=contents.critical_paths())]
    write_whole(target, page_of(contents, found, prices=prices, trace=beside[0].name if beside else ""))
    return [target, *beside]


def write_profile_page(profile: Path, *, page: Path | None = None) -> Path:
    """Write the page of a profile alone, ours or the CSV of Zeus; return its path.

    Raises:
        ProfileError: it cannot be read.
        OSError: the page cannot be written there.
    """
    # as above

    contents = Contents(profile.parent, read_profile(profile), None, None, {}, (), ())
    target = profile.with_suffix(".html") if page is None else page
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page_of(contents, figures(contents)))
    return target
