"""The report as one self-contained HTML page: no network, pictures inside, printable."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from perseus_ds.plan import certified
from perseus_ds.report.contents import Contents
from perseus_ds.report.contents.figures import Figures
from perseus_ds.report.contents.journal import STRAGGLER_HEADER, journal_lines, named_value, straggler_rows
from perseus_ds.report.contents.worth import EnergyPrices, worth
from perseus_ds.report.number import short, signed
from perseus_ds.report.page.style import SCRIPT, STYLE
from perseus_ds.report.page.timeline_svg import timelines_svg
from perseus_ds.report.pictures.gallery import MEASURED_DURATIONS, MOST_SPANS, Picture, Slot
from perseus_ds.report.timeline.power_scale import power_scale
from perseus_ds.report.walk.canvas import walk_html
from perseus_ds.report.walk.walk import Walk
from perseus_ds.run_directory import RecordedIteration


def page_of(
    contents: Contents,
    found: Figures,
    pictures: Sequence[Picture],
    *,
    title: str,
    walk: Walk | None = None,
    prices: EnergyPrices | None = None,
) -> str:
    """Assemble the page from whatever is there."""
    parts = [
        _head(found, title),
        _cards(found),
        _figures_table(found),
        _worth(contents, prices or EnergyPrices()),
        _missing(contents),
        _timelines(contents),
        *(_picture(picture) for picture in pictures if picture.place is not Slot.BESIDE_THE_PAGE),
        "" if walk is None else section("From T* to full speed", _WALK_WORDS + walk_html(walk)),
        _stragglers(contents),
        _facts("The job", contents.fingerprint, "what the plan is valid for"),
        _facts("Beside the numbers", {} if contents.summary is None else contents.summary.facts, ""),
        _journal(contents),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + f'\n<div id="tip"></div>\n<script>{SCRIPT}</script>\n</body>\n</html>\n'
    )


def _head(found: Figures, title: str) -> str:
    badge = ' <span class="badge">simulated GPU</span>' if found.simulated else ""
    return f'<h1>{escape(title)}</h1>\n<p class="faint">{escape(found.job)}{badge}</p>'


def _cards(found: Figures) -> str:
    cards = []
    if saving := found.measured:
        text = f"energy saved, measured ({saving.source})"
        within = _within(saving.slowdown_within_pct, 2)
        cards.append(card("measured", f"{saving.saving_pct:.1f}{_within(saving.within_pct, 1)} %", text))
        cards.append(
            card(
                "measured", f"{signed(saving.slowdown_pct, decimals=2)}{within} %", "iteration time, measured"
            )
        )
    if saving := found.predicted:
        text = f"energy saved, predicted ({saving.source})"
        cards.append(card("predicted", f"{saving.saving_pct:.1f}{_within(saving.within_pct, 1)} %", text))
    if found.gap_pct is not None:
        cards.append(card("predicted", f"{found.gap_pct:.3f} %", certified(found.gap_pct)))
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _within(points: float | None, decimals: int) -> str:
    return "" if points is None else f" \N{PLUS-MINUS SIGN} {points:.{decimals}f}"


def _figures_table(found: Figures) -> str:
    if not found.rows:
        return ""
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
    return section(f"Measured{where}", table(["", "baseline", "perseus", "difference"], rows, numbers_from=1))


_WALK_WORDS = (
    '<p class="faint">Every position is a plan: where the iteration may last longer, more clocks fall.'
    " The last position is the job without a plan.</p>"
)


def _worth(contents: Contents, prices: EnergyPrices) -> str:
    """What the measured saving comes to at the job's size and pace."""
    if contents.summary is None:
        return ""
    known = prices.or_from(contents.summary.facts)
    found = worth(contents.summary, known)
    building = "" if known.pue == 1.0 else f", the building's share with it (PUE {known.pue:g})"
    rows = [
        ["energy per iteration", f"{short(found.per_iteration_j)} J"],
        [f"energy per day of training{building}", f"{short(found.per_day_kwh)} kWh"],
    ]
    if found.per_day_money is not None:
        rows.append(["money per day", f"{short(found.per_day_money)} at {known.price_per_kwh:g} per kWh"])
    if found.per_day_kgco2 is not None:
        rows.append(["CO2 per day", f"{short(found.per_day_kgco2)} kg at {known.gco2_per_kwh:g} g per kWh"])
    return section("What the saving is worth", table(["the whole job saves", ""], rows, numbers_from=1))


def _stragglers(contents: Contents) -> str:
    rows = straggler_rows(contents.events)
    return section("Stragglers", table(list(STRAGGLER_HEADER), rows)) if rows else ""


def _missing(contents: Contents) -> str:
    if not contents.missing:
        return ""
    rows = [[part.file, part.why] for part in contents.missing]
    return section("Not here", table(["file", "why"], rows))


def _timelines(contents: Contents) -> str:
    timelines = contents.in_order()
    if not timelines:
        return ""
    spans = sum(len(timeline.spans) for timeline in timelines)
    if spans > MOST_SPANS:
        return ""  # too many to point at: the picture stands here instead
    words = f"{MEASURED_DURATIONS} Point at a box for its numbers."
    caption = f'<p class="faint">{escape(words)}</p>'
    drawn = timelines_svg(timelines, critical=contents.critical_paths())
    return section(
        "One iteration, before and after",
        f'{caption}<div class="picture">{drawn}{_scale(timelines)}</div>',
    )


def _scale(timelines: Sequence[RecordedIteration]) -> str:
    scale = power_scale(timelines)
    steps = [scale.lowest_w + part / 8 * (scale.highest_w - scale.lowest_w) for part in range(9)]
    gradient = f"linear-gradient(to right, {', '.join(map(scale.colour, steps))})"
    return (
        f'<div class="scale">{scale.lowest_w:.0f} W <i style="background: {gradient}"></i>'
        f" {scale.highest_w:.0f} W mean power; tall: backward, short: forward, low: waiting</div>"
    )


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.path.read_bytes()).decode()
    image = f'<img alt="{escape(picture.heading)}" src="data:image/png;base64,{data}">'
    caption = f'<p class="faint">{escape(picture.caption)}</p>'
    return section(picture.heading, f'{caption}<div class="picture {picture.place.value}">{image}</div>')


def _facts(heading: str, facts: Mapping[str, object], note: str) -> str:
    if not facts:
        return ""
    caption = f'<p class="faint">{escape(note)}</p>' if note else ""
    rows = [named_value(key, value) for key, value in facts.items()]
    return section(heading, caption + table(["", ""], rows))


def _journal(contents: Contents) -> str:
    if not contents.events:
        return ""
    rows = [[line.time, line.event, line.facts] for line in journal_lines(contents.events)]
    return section("What happened", f'<div class="journal">{table(["time (UTC)", "event", ""], rows)}</div>')


def card(kind: str, value: str, text: str) -> str:
    """Return one figure in large print; ``kind`` is measured or predicted."""
    return f'<div class="card {kind}"><b>{escape(value)}</b>{escape(text)}</div>'


def section(heading: str, body: str) -> str:
    """Return a part of the page; ``body`` is HTML already."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{body}\n</section>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 99) -> str:
    """Return a table; columns from ``numbers_from`` on are flush right."""

    def cells(tag: str, values: Sequence[str]) -> str:
        marks = [' class="n"' if column >= numbers_from else "" for column in range(len(values))]
        return "".join(f"<{tag}{mark}>{escape(v)}</{tag}>" for mark, v in zip(marks, values, strict=True))

    head = f"<tr>{cells('th', header)}</tr>" if any(header) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"
