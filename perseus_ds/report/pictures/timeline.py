"""The iteration before and after, drawn to one time scale, every box coloured by its mean power."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from perseus_ds.report import theme
from perseus_ds.report.number import short
from perseus_ds.report.timeline.lanes import (
    STRIPE_HEIGHT,
    WAITING_HEIGHT,
    Lane,
    chunks,
    energy_j,
    height,
    lanes,
    panel_name,
)
from perseus_ds.report.timeline.power_scale import PowerScale, power_scale
from perseus_ds.run_directory import RecordedIteration, Span
from perseus_ds.schedule import Instruction, Kind

_WIDTH_IN = 13.3
_MARGINS = theme.Margins(left=0.85, right=1.55, bottom=1.0)
_SMALLEST_DIGIT_IN = 0.075  # room for one digit of the numbers in the boxes
_MOST_NUMBERS = 1500


def draw_timelines(
    timelines: Sequence[RecordedIteration],
    path: Path,
    *,
    title: str,
    subtitle: str,
    critical: Mapping[str, Collection[Instruction]] | None = None,
) -> Path:
    """Draw one panel per timeline and write the PNG."""
    scale = power_scale(timelines)
    ranks = max(len(lanes(timeline)) for timeline in timelines)
    panel_in = min(3.4, max(1.5, 0.42 * ranks))
    with theme.themed():
        figure = theme.titled_figure(
            _WIDTH_IN, 2.15 + len(timelines) * (panel_in + 0.45), title=title, subtitle=subtitle
        )
        grid = theme.below_title(figure, len(timelines), 1, margins=_MARGINS, hspace=0.45 / panel_in)
        panels = [figure.add_subplot(grid[row, 0]) for row in range(len(timelines))]
        end_s = max(timeline.iteration_time_s for timeline in timelines)
        for axes, timeline in zip(panels, timelines, strict=True):
            _panel(axes, timeline, scale, end_s)
            _critical(axes, timeline, frozenset((critical or {}).get(timeline.name, ())))
        for axes in panels[:-1]:
            axes.tick_params(labelbottom=False)
        for axes in panels[1:]:
            axes.axvline(timelines[0].iteration_time_s, color=theme.FAINT_INK, linestyle=(0, (4, 3)))
        panels[-1].set_xlabel("time in the iteration (s)")
        draw_key(figure, timelines, scale, left_in=_MARGINS.left)
        theme.colour_bar(figure, scale.mappable(), margins=_MARGINS, label="mean power (W)")
        return theme.save(figure, path)


def _panel(axes: Axes, timeline: RecordedIteration, scale: PowerScale, end_s: float) -> None:
    rows = lanes(timeline)
    seconds_per_inch = end_s / (_WIDTH_IN - _MARGINS.left - _MARGINS.right)
    for row, lane in enumerate(rows):
        _lane(axes, lane, scale, timeline.blocking_power_w, floor=row + 0.93)
        if len(timeline.spans) <= _MOST_NUMBERS:
            _numbers(axes, lane.spans, scale, seconds_per_inch, floor=row + 0.93)
    axes.axvline(timeline.iteration_time_s, color=theme.INK, linewidth=1.4, clip_on=False)
    axes.set_xlim(0.0, end_s)
    axes.set_ylim(len(rows) - 0.02, -0.05)
    axes.set_yticks([row + 0.5 for row in range(len(rows))], [lane.name for lane in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(panel_name(timeline), fontweight="bold")
    axes.set_title(f"{short(timeline.iteration_time_s)} s, {short(energy_j(timeline))} J", loc="right")


def _critical(axes: Axes, timeline: RecordedIteration, on_path: frozenset[Instruction]) -> None:
    """Underline the longest path."""
    for row, lane in enumerate(lanes(timeline)):
        mine = [(s.start_s, s.duration_s) for s in lane.spans if s.instruction in on_path]
        axes.broken_barh(mine, (row + 0.93, 0.07), facecolors=theme.INK, linewidth=0)


def _lane(axes: Axes, lane: Lane, scale: PowerScale, blocking_w: float, *, floor: float) -> None:
    """Draw boxes of one height together: thousands of them are one collection each."""
    waiting = [(gap.start_s, gap.duration_s) for gap in lane.gaps]
    axes.broken_barh(
        waiting, (floor - WAITING_HEIGHT, WAITING_HEIGHT), facecolors=scale.colour(blocking_w), linewidth=0
    )
    for kind in dict.fromkeys(span.instruction.kind for span in lane.spans):
        spans = [span for span in lane.spans if span.instruction.kind is kind]
        axes.broken_barh(
            [(span.start_s, span.duration_s) for span in spans],
            (floor - height(kind), height(kind)),
            facecolors=[scale.colour(_power_w(span, blocking_w)) for span in spans],
            edgecolors="white",
            linewidth=0.6 if kind.is_computation else 0.2,
        )
    if len(lane.stages) > 1:
        _stripes(axes, lane, floor=floor)


def _stripes(axes: Axes, lane: Lane, *, floor: float) -> None:
    """Underline the chunks of a rank that holds several."""
    for chunk in range(len(lane.stages)):
        mine = [s for s in lane.spans if s.instruction.kind.is_computation and lane.chunk_of(s) == chunk]
        axes.broken_barh(
            [(span.start_s, span.duration_s) for span in mine],
            (floor - STRIPE_HEIGHT, STRIPE_HEIGHT),
            facecolors=theme.CHUNKS[chunk % len(theme.CHUNKS)],
            linewidth=0,
        )


def _numbers(
    axes: Axes, spans: Sequence[Span], scale: PowerScale, seconds_per_inch: float, *, floor: float
) -> None:
    for span in spans:
        text = str(span.instruction.microbatch)
        if not span.instruction.kind.is_computation or span.power_w is None:
            continue
        room_in = span.duration_s / seconds_per_inch / len(text)
        if room_in < _SMALLEST_DIGIT_IN:
            continue
        axes.text(
            span.start_s + span.duration_s / 2,
            floor - height(span.instruction.kind) / 2,
            text,
            ha="center",
            va="center_baseline",
            fontsize=min(8.5, 72.0 * room_in),
            color=scale.ink(span.power_w),
        )


def _power_w(span: Span, blocking_w: float) -> float:
    return blocking_w if span.power_w is None else span.power_w


_FLOOR_IN, _BOX_IN, _APART_IN = 0.2, 0.3, 2.0


def draw_key(
    figure: Figure, timelines: Sequence[RecordedIteration], scale: PowerScale, *, left_in: float
) -> None:
    """Draw a box of each height with its meaning, at the foot of the figure, and a stripe of each chunk."""
    for number, (tall, colours, text) in enumerate(_entries(timelines, scale)):
        _entry(figure, left_in + number * _APART_IN, tall, colours, text)


def _entries(
    timelines: Sequence[RecordedIteration], scale: PowerScale
) -> Iterator[tuple[float, list[str], str]]:
    """Height, colours and meaning of each kind of box that is drawn."""
    middle = scale.colour((scale.lowest_w + scale.highest_w) / 2)
    blocking_w = timelines[-1].blocking_power_w
    waiting = scale.colour(blocking_w)
    drawn = {span.instruction.kind for timeline in timelines for span in timeline.spans}
    computed = [kind for kind in Kind if kind in drawn and kind.is_computation]
    yield from ((height(kind), [middle], kind.words) for kind in computed)
    yield WAITING_HEIGHT, [waiting], f"waiting, at {blocking_w:.0f} W"
    if len(computed) < len(drawn):
        yield height(Kind.STEP), [waiting], "transfers, reduction, step"
    several = max(chunks(timeline) for timeline in timelines)
    if several > 1:
        stripes = [theme.CHUNKS[n % len(theme.CHUNKS)] for n in range(several)]
        yield STRIPE_HEIGHT, stripes, f"chunks 0 to {several - 1} of a rank"


def _entry(figure: Figure, left_in: float, tall: float, colours: Sequence[str], text: str) -> None:
    width_in, height_in = figure.get_size_inches()
    each_in = _BOX_IN / len(colours)
    for number, colour in enumerate(colours):
        corner = ((left_in + number * each_in) / width_in, _FLOOR_IN / height_in)
        size = (each_in / width_in, _BOX_IN * tall / height_in)
        figure.add_artist(Rectangle(corner, *size, facecolor=colour, edgecolor="none"))
    figure.text((left_in + 0.38) / width_in, (_FLOOR_IN + 0.04) / height_in, text, fontsize=9.0)
