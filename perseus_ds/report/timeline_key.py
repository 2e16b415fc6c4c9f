"""How to read the heights in the timeline picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from perseus_ds.report.lanes import WAITING_HEIGHT, height
from perseus_ds.report.power_scale import PowerScale
from perseus_ds.run_directory import Timeline
from perseus_ds.schedule import Kind

_FLOOR_IN, _BOX_IN, _APART_IN = 0.2, 0.3, 2.0


def draw_key(figure: Figure, timelines: Sequence[Timeline], scale: PowerScale, *, left_in: float) -> None:
    """Draw a box of each height with its meaning, at the foot of the figure."""
    middle = scale.colour((scale.lowest_w + scale.highest_w) / 2)
    blocking_w = timelines[-1].blocking_power_w
    waiting = scale.colour(blocking_w)
    entries = [
        (height(Kind.FORWARD), middle, "forward (microbatch)"),
        (height(Kind.BACKWARD), middle, "backward (microbatch)"),
        (WAITING_HEIGHT, waiting, f"waiting, at {blocking_w:.0f} W"),
    ]
    if any(not span.instruction.kind.is_computation for t in timelines for span in t.spans):
        entries.append((height(Kind.STEP), waiting, "transfers, reduction, step"))
    for number, (tall, colour, text) in enumerate(entries):
        _entry(figure, left_in + number * _APART_IN, tall, colour, text)


def _entry(figure: Figure, left_in: float, tall: float, colour: str, text: str) -> None:
    width_in, height_in = figure.get_size_inches()
    corner = (left_in / width_in, _FLOOR_IN / height_in)
    size = (_BOX_IN / width_in, _BOX_IN * tall / height_in)
    figure.add_artist(Rectangle(corner, *size, facecolor=colour, edgecolor="none"))
    figure.text((left_in + 0.38) / width_in, (_FLOOR_IN + 0.04) / height_in, text, fontsize=9.0)
