"""Table 6 and the straggler figures as pictures: every method beside the certified bound and the papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import theme
from matplotlib.axes import Axes
from published import ENVPIPE_BESIDE_1_2, GPUS, PERSEUS_BESIDE_1_2, PERSEUS_TABLE_6
from rows import AUTHORS, BOUND, OURS, SLOWDOWNS, Row

_MARGINS = theme.Margins(left=0.8, right=0.4, bottom=1.25)
_SIZE_IN = (9.6, 5.4)
_SHOWN = ("EnvPipe, balanced", "ZeusPerStage", "Perseus as published", OURS)
_COLOURS = ("#b9c0c9", "#b0741a", "#4a7fb5", theme.PERSEUS)
_MARKS = ("s", "^", "D", "o")
_LEAST_PCT = 0.05


def draw_table_6(rows: Sequence[Row], path: Path) -> None:
    """Draw a group of bars per number of microbatches, the bound as a line above each."""
    title = "Energy saved at full speed: GPT-3 175B on A100, 8 stages, emulated"
    with theme.themed():
        figure = theme.titled_figure(*_SIZE_IN, title=title, subtitle=_SUBTITLE)
        axes = figure.add_subplot(theme.below_title(figure, 1, 1, margins=_MARGINS)[0, 0])
        microbatches = sorted({row.microbatches for row in rows})
        for place, (method, colour) in enumerate(zip(_SHOWN, _COLOURS, strict=True)):
            savings = [_saving(rows, m, method, "1") for m in microbatches]
            where = np.arange(len(microbatches)) + 0.2 * (place - 1.5)
            axes.bar(where, savings, 0.19, color=colour, label=method)
            for x, m, saving in zip(where, microbatches, savings, strict=True):
                _inside(axes, x, saving, _longer_pct(rows, m, method), dark=colour != _COLOURS[0])
        for place, m in enumerate(microbatches):
            bound = _saving(rows, m, BOUND, "1")
            axes.hlines(
                bound, place - 0.4, place + 0.4, color=theme.BOUND, label=BOUND if not place else None
            )
            if m in PERSEUS_TABLE_6:
                label = "the paper's table 6" if not place else None
                axes.plot(place + 0.1, PERSEUS_TABLE_6[m], "x", color=theme.INK, markersize=7, label=label)
        axes.set_xticks(range(len(microbatches)), [f"{m} microbatches" for m in microbatches])
        axes.set_ylabel("energy saved (%)")
        axes.set_ylim(0.0, 18.0)
        _finish(axes, columns=3)
        theme.save(figure, path)


def draw_stragglers(rows: Sequence[Row], path: Path) -> None:
    """Draw saving against the straggler's slowdown, for the most microbatches."""
    most = max(row.microbatches for row in rows)
    title = f"Energy saved beside a straggler: {GPUS.get(most, 0)} GPUs, {most} microbatches, emulated"
    with theme.themed():
        figure = theme.titled_figure(*_SIZE_IN, title=title, subtitle=_SUBTITLE)
        axes = figure.add_subplot(theme.below_title(figure, 1, 1, margins=_MARGINS)[0, 0])
        for method, colour, mark in zip(_SHOWN, _COLOURS, _MARKS, strict=True):
            axes.plot(SLOWDOWNS, _line(rows, most, method), f"-{mark}", color=colour, label=method)
        axes.plot(SLOWDOWNS, _line(rows, most, AUTHORS), ":", color=_COLOURS[2], label=AUTHORS)
        axes.plot(SLOWDOWNS, _line(rows, most, BOUND), "-", color=theme.BOUND, linewidth=1.0, label=BOUND)
        for known, name in (
            (PERSEUS_BESIDE_1_2, "Perseus, published"),
            (ENVPIPE_BESIDE_1_2, "EnvPipe, published"),
        ):
            if most in known:
                axes.plot(1.2, known[most], "x", color=theme.INK, markersize=8, markeredgewidth=2)
                axes.annotate(name, (1.2, known[most]), (8, -12), textcoords="offset points", fontsize=9)
        axes.set_xlabel("straggler's slowdown T'/T")
        axes.set_ylabel("energy saved (%)")
        axes.set_ylim(0.0)
        _finish(axes, columns=3)
        theme.save(figure, path)


def draw_scaling(rows: Sequence[Row], path: Path) -> None:
    """Draw strong scaling: the saving beside stragglers, a panel per number of GPUs."""
    microbatches = [m for m in sorted(GPUS, reverse=True) if any(row.microbatches == m for row in rows)]
    if not microbatches:
        return
    title = "Strong scaling: saving beside stragglers as the job grows, emulated"
    with theme.themed():
        figure = theme.titled_figure(11.6, 4.9, title=title, subtitle=_SUBTITLE)
        grid = theme.below_title(figure, 1, len(microbatches), margins=_MARGINS, wspace=0.12)
        for column, m in enumerate(microbatches):
            axes = figure.add_subplot(grid[0, column])
            for method, colour, mark in zip(_SHOWN, _COLOURS, _MARKS, strict=True):
                axes.plot(
                    SLOWDOWNS, _line(rows, m, method), f"-{mark}", color=colour, markersize=4, label=method
                )
            axes.plot(SLOWDOWNS, _line(rows, m, BOUND), color=theme.BOUND, linewidth=1.0, label=BOUND)
            axes.set_title(f"{GPUS[m]} GPUs", fontweight="bold")
            axes.set_ylim(0.0, 34.0)
            axes.tick_params(labelleft=not column)
            theme.bare(axes)
            axes.grid(color=theme.GRID, linewidth=0.7)
        figure.axes[0].set_ylabel("energy saved (%)")
        figure.supxlabel("straggler's slowdown T'/T", y=0.115, fontsize=10)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=5)
        theme.save(figure, path)


_SUBTITLE = "Measured profile of the Perseus artifact, blocking power 83.64 W, 1F1B; all methods priced alike"


def _inside(axes: Axes, x: float, saving: float, longer_pct: float, *, dark: bool) -> None:
    """Write the saving and, where there is any, its price in time into the top of a bar."""
    slower = f"\n{longer_pct:+.1f}%\ntime" if longer_pct >= _LEAST_PCT else ""
    ink = "white" if dark else theme.INK
    axes.text(x, saving - 0.9, f"{saving:.1f}{slower}", ha="center", va="top", fontsize=8.5, color=ink)


def _longer_pct(rows: Sequence[Row], microbatches: int, method: str) -> float:
    return next(r.longer_pct for r in rows if (r.microbatches, r.method) == (microbatches, method))


def _saving(rows: Sequence[Row], microbatches: int, method: str, slowdown: str) -> float:
    found = next(r for r in rows if r.microbatches == microbatches and r.method == method)
    return found.saving_pct[slowdown] or float("nan")


def _line(rows: Sequence[Row], microbatches: int, method: str) -> list[float]:
    return [_saving(rows, microbatches, method, f"{slowdown:g}") for slowdown in SLOWDOWNS]


def _finish(axes: Axes, *, columns: int) -> None:
    theme.bare(axes)
    axes.grid(axis="y", color=theme.GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=columns)
