"""How our pictures look: colours, sizes, and the figure with a title that all of them start from."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from perseus_ds.run_directory.paths import write_whole

INK = "#1c2430"
FAINT_INK = "#5f6975"
GRID = "#e3e7ec"
BASELINE = "#8d97a3"
PERSEUS = "#0b7a75"
BOUND = "#c2410c"
MEASURED = "#5b2a86"
CHUNKS = ("#0b7a75", "#2f6fb0", "#c2410c", "#6b8e23", "#8d97a3", "#5b2a86")

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT_INK,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "xtick.color": FAINT_INK,
    "ytick.color": FAINT_INK,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "hatch.linewidth": 0.8,
}

_DPI = 160
_HEAD_IN = 1.1


def themed() -> AbstractContextManager[None]:
    """Give the figures made inside it our fonts and colours; nothing outside it changes."""
    return rc_context(_RC)  # type: ignore[arg-type]  # matplotlib's type spells out every key


@dataclass(frozen=True, slots=True)
class Margins:
    """Room around the axes for labels; the head has its own.

    Units: inches.
    """

    left: float = 0.85
    right: float = 0.35
    bottom: float = 0.6


def titled_figure(width_in: float, height_in: float, *, title: str, subtitle: str) -> Figure:
    """Start a figure with a bold title and a line below it, flush left."""
    figure = Figure(figsize=(width_in, height_in), dpi=_DPI, facecolor="white")
    left = 0.3 / width_in
    figure.text(left, 1.0 - 0.22 / height_in, title, va="top", fontsize=14.5, fontweight="bold")
    figure.text(left, 1.0 - 0.54 / height_in, subtitle, va="top", fontsize=10.0, color=FAINT_INK)
    return figure


def below_title(figure: Figure, rows: int, columns: int, *, margins: Margins, **spacing: object) -> GridSpec:
    """Divide what lies below the title; ``spacing`` goes to GridSpec."""
    width_in, height_in = figure.get_size_inches()
    return GridSpec(
        rows,
        columns,
        figure=figure,
        left=margins.left / width_in,
        right=1.0 - margins.right / width_in,
        bottom=margins.bottom / height_in,
        top=1.0 - _HEAD_IN / height_in,
        **spacing,  # type: ignore[arg-type]
    )


def colour_bar(figure: Figure, colours: ScalarMappable, *, margins: Margins, label: str) -> None:
    """Draw a colour bar in the right margin, as high as the axes."""
    width_in, height_in = figure.get_size_inches()
    left, floor = 1.0 - (margins.right - 0.3) / width_in, margins.bottom / height_in
    box = (left, floor, 0.16 / width_in, 1.0 - _HEAD_IN / height_in - floor)
    bar = figure.colorbar(colours, cax=figure.add_axes(box))
    bar.set_label(label)
    bar.outline.set_visible(False)


def bare(axes: Axes) -> None:
    """Take away the upper and right border."""
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> Path:
    """Write the PNG."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, format=path.suffix.removeprefix(".") or "png")
    write_whole(path, drawn.getvalue())
    return path
