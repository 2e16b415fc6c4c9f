"""Baseline beside plan: measured bars filled, predicted bars hatched, never mixed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from perseus_ds.report import theme
from perseus_ds.report.contents.figures import Compared, Figures
from perseus_ds.report.number import short, signed

_SIZE_IN = (9.6, 4.9)
_MARGINS = theme.Margins(left=0.7, right=0.35, bottom=0.75)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a value as a part of the measured baseline, and what is written on it."""

    name: str
    value: float
    text: str
    predicted: bool = False


def draw_saving(found: Figures, path: Path, *, title: str, subtitle: str) -> Path:
    """Draw one panel per quantity and write the PNG."""
    with theme.themed():
        figure = theme.titled_figure(*_SIZE_IN, title=title, subtitle=subtitle)
        grid = theme.below_title(figure, 1, len(found.rows), margins=_MARGINS, wspace=0.28)
        for column, row in enumerate(found.rows):
            _panel(figure.add_subplot(grid[0, column]), row, bars(row, found))
        handles = [
            Patch(facecolor=theme.BASELINE, label="measured at default clocks"),
            Patch(facecolor=theme.PERSEUS, label="measured at the plan"),
            Patch(
                facecolor="white", edgecolor=theme.PERSEUS, hatch="////", label="to be expected of the plan"
            ),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=3)
        return theme.save(figure, path)


def bars(row: Compared, found: Figures) -> Sequence[Bar]:
    """Compute one panel's bars; the prediction stands on the measured baseline."""
    shown = [
        Bar("baseline", row.baseline, short(row.baseline)),
        Bar("plan", row.perseus, f"{short(row.perseus)}\n{signed(row.difference_pct, decimals=1)} %"),
    ]
    if found.predicted is not None:
        value = found.predicted.factor(row.quantity) * row.baseline
        text = f"{short(value)}\n{signed(100.0 * (value / row.baseline - 1.0), decimals=1)} %"
        shown.append(Bar("plan", value, text, predicted=True))
    return shown


def _panel(axes: Axes, row: Compared, shown: Sequence[Bar]) -> None:
    for position, bar in enumerate(shown):
        colour = theme.BASELINE if bar.name == "baseline" else theme.PERSEUS
        axes.bar(
            position,
            bar.value,
            width=0.68,
            facecolor="white" if bar.predicted else colour,
            edgecolor=colour,
            hatch="////" if bar.predicted else None,
        )
        axes.text(position, bar.value, bar.text, ha="center", va="bottom", linespacing=1.25)
    axes.set_ylim(0.0, 1.22 * max(bar.value for bar in shown))
    axes.set_xticks([])
    axes.set_title(f"{row.name} ({row.unit})", fontweight="bold")
    theme.bare(axes)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
