"""The report of one run: the page's text, section by section."""

from __future__ import annotations

from collections.abc import Iterator

from perseus_ds import __version__
from perseus_ds.config import shown
from perseus_ds.report.contents import Contents
from perseus_ds.report.contents.explained import explanation, why_not_as_planned, with_error
from perseus_ds.report.contents.figures import Figures, headline, per_pipeline
from perseus_ds.report.contents.gpus import GpuRow, courses, gpu_rows
from perseus_ds.report.contents.journal import (
    MOST_LINES,
    STRAGGLER_HEADER,
    fact_rows,
    journal_lines,
    straggler_rows,
)
from perseus_ds.report.contents.worth import EnergyPrices, worth
from perseus_ds.report.number import count, short, signed
from perseus_ds.report.page import alt_texts
from perseus_ds.report.page.figure_data import (
    MOST_SPANS,
    clocks_data,
    course_data,
    frontier_data,
    shown_plans,
    timeline_data,
)
from perseus_ds.report.page.profile_section import profile_sections
from perseus_ds.report.page.render import figure, render_page, section
from perseus_ds.report.timeline.energy_causes import Causes, causes, causes_beside, clock_changes

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
            yield name, shown(str(attached[key]))
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
    drawn = figure("courses", caption, alt=alt_texts.of_courses(found), legend=legend)
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
    part = figure("timeline", caption, alt=alt_texts.of_timelines(timelines), legend=legend)
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
    frontier = figure("frontier", caption, alt=alt_texts.of_frontier(plan), legend=legend, hint=hint)
    size = count(plan.of.schedule.microbatches, "microbatch", "es")
    yield section(f"The frontier: energy against time, {size}", figures=[frontier])
    caption = "A row per stage and kind, a column per microbatch. Neighbours at one clock are one box."
    ramp = [(_RAMP, (f"{drawn['low']} MHz", f"{drawn['high']} MHz"))]
    clocks = figure("clocks", caption, alt=alt_texts.of_clocks(plan), legend=ramp)
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
