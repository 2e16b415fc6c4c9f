"""How to read the heights and stripes in the timeline picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from perseus_ds.report import theme
from perseus_ds.report.timeline.lanes import STRIPE_HEIGHT, WAITING_HEIGHT, chunks, height
from perseus_ds.report.timeline.power_scale import PowerScale
from perseus_ds.run_directory import Timeline
from perseus_ds.schedule import Kind

_FLOOR_IN, _BOX_IN, _APART_IN = 0.2, 0.3, 2.0


def draw_key(figure: Figure, timelines: Sequence[Timeline], scale: PowerScale, *, left_in: float) -> None:
    """Draw a box of each height with its meaning, at the foot of the figure, and a stripe of each chunk."""
    middle = scale.colour((scale.lowest_w + scale.highest_w) / 2)
    blocking_w = timelines[-1].blocking_power_w
    waiting = scale.colour(blocking_w)
    drawn = {span.instruction.kind for timeline in timelines for span in timeline.spans}
    entries = [(height(kind), middle, kind.words) for kind in Kind if kind in drawn and kind.is_computation]
    entries.append((WAITING_HEIGHT, waiting, f"waiting, at {blocking_w:.0f} W"))
    if any(not kind.is_computation for kind in drawn):
        entries.append((height(Kind.STEP), waiting, "transfers, reduction, step"))
    several = max(chunks(timeline) for timeline in timelines)
    if several > 1:
        entries.append((STRIPE_HEIGHT, "", f"chunks 0 to {several - 1} of a rank"))
    for number, (tall, colour, text) in enumerate(entries):
        colours = [colour] if colour else [theme.CHUNKS[n % len(theme.CHUNKS)] for n in range(several)]
        _entry(figure, left_in + number * _APART_IN, tall, colours, text)


def _entry(figure: Figure, left_in: float, tall: float, colours: Sequence[str], text: str) -> None:
    width_in, height_in = figure.get_size_inches()
    each_in = _BOX_IN / len(colours)
    for number, colour in enumerate(colours):
        corner = ((left_in + number * each_in) / width_in, _FLOOR_IN / height_in)
        size = (each_in / width_in, _BOX_IN * tall / height_in)
        figure.add_artist(Rectangle(corner, *size, facecolor=colour, edgecolor="none"))
    figure.text((left_in + 0.38) / width_in, (_FLOOR_IN + 0.04) / height_in, text, fontsize=9.0)
