"""Table 6 and the straggler figure as pictures: every method beside the certified bound and the papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from published import ENVPIPE_BESIDE_1_2, GPUS, PERSEUS_BESIDE_1_2, PERSEUS_TABLE_6
from rows import AUTHORS, BOUND, OURS, SLOWDOWNS, Row

_INK, _FAINT, _GRID, _BOUND = "#1c2430", "#5f6975", "#e3e7ec", "#c2410c"
_RC = {"text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _FAINT, "legend.frameon": False}
_SIZE_IN = (9.6, 5.4)
_SUBTITLE = "Measured profile of the Perseus artifact, blocking power 83.64 W, 1F1B; all methods priced alike"
_SHOWN = ("EnvPipe, balanced", "ZeusPerStage", "Perseus as published", OURS)
_COLOURS = ("#b9c0c9", "#b0741a", "#4a7fb5", "#0b7a75")
_MARKS = ("s", "^", "D", "o")
_LEAST_PCT = 0.05


def draw_table_6(rows: Sequence[Row], path: Path) -> None:
    """Draw a group of bars per number of microbatches, the bound as a line above each."""
    with rc_context(_RC):  # type: ignore[arg-type]  # matplotlib's type spells out every key
        figure, axes = _titled("Energy saved at full speed: GPT-3 175B on A100, 8 stages, emulated")
        microbatches = sorted({row.microbatches for row in rows})
        for place, (method, colour) in enumerate(zip(_SHOWN, _COLOURS, strict=True)):
            savings = [_saving(rows, m, method, "1") for m in microbatches]
            where = np.arange(len(microbatches)) + 0.2 * (place - 1.5)
            axes.bar(where, savings, 0.19, color=colour, label=method)
            for x, m, saving in zip(where, microbatches, savings, strict=True):
                _inside(axes, x, saving, _longer_pct(rows, m, method), dark=bool(place))
        for place, m in enumerate(microbatches):
            bound = _saving(rows, m, BOUND, "1")
            axes.hlines(bound, place - 0.4, place + 0.4, color=_BOUND, label=BOUND if not place else None)
            if m in PERSEUS_TABLE_6:
                label = "the paper's table 6" if not place else None
                axes.plot(place + 0.1, PERSEUS_TABLE_6[m], "x", color=_INK, markersize=7, label=label)
        axes.set_xticks(range(len(microbatches)), [f"{m} microbatches" for m in microbatches])
        axes.set_ylim(0.0, 18.0)
        _finish(figure, axes, path)


def draw_stragglers(rows: Sequence[Row], path: Path) -> None:
    """Draw saving against the straggler's slowdown, for the most microbatches."""
    most = max(row.microbatches for row in rows)
    with rc_context(_RC):  # type: ignore[arg-type]
        figure, axes = _titled(
            f"Energy saved beside a straggler: {GPUS.get(most, 0)} GPUs, {most} microbatches, emulated"
        )
        for method, colour, mark in zip(_SHOWN, _COLOURS, _MARKS, strict=True):
            axes.plot(SLOWDOWNS, _line(rows, most, method), f"-{mark}", color=colour, label=method)
        axes.plot(SLOWDOWNS, _line(rows, most, AUTHORS), ":", color=_COLOURS[2], label=AUTHORS)
        axes.plot(SLOWDOWNS, _line(rows, most, BOUND), "-", color=_BOUND, linewidth=1.0, label=BOUND)
        for known, name in ((PERSEUS_BESIDE_1_2, "Perseus"), (ENVPIPE_BESIDE_1_2, "EnvPipe")):
            if most in known:
                axes.plot(1.2, known[most], "x", color=_INK, markersize=8, markeredgewidth=2)
                where = (1.2, known[most])
                axes.annotate(f"{name}, published", where, (8, -12), textcoords="offset points", fontsize=9)
        axes.set_xlabel("straggler's slowdown T'/T")
        axes.set_ylim(0.0)
        _finish(figure, axes, path)


def _titled(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE_IN, facecolor="white", layout="constrained")
    figure.suptitle(title, fontsize=14.5, fontweight="bold")
    axes = figure.subplots()
    axes.set_title(_SUBTITLE, fontsize=10.0, color=_FAINT)
    axes.set_ylabel("energy saved (%)")
    return figure, axes


def _inside(axes: Axes, x: float, saving: float, longer_pct: float, *, dark: bool) -> None:
    """Write the saving and, where there is any, its price in time into the top of a bar."""
    slower = f"\n{longer_pct:+.1f}%\ntime" if longer_pct >= _LEAST_PCT else ""
    ink = "white" if dark else _INK
    axes.text(x, saving - 0.9, f"{saving:.1f}{slower}", ha="center", va="top", fontsize=8.5, color=ink)


def _longer_pct(rows: Sequence[Row], microbatches: int, method: str) -> float:
    return next(r.longer_pct for r in rows if (r.microbatches, r.method) == (microbatches, method))


def _saving(rows: Sequence[Row], microbatches: int, method: str, slowdown: str) -> float:
    found = next(r for r in rows if r.microbatches == microbatches and r.method == method)
    return found.saving_pct[slowdown] or float("nan")


def _line(rows: Sequence[Row], microbatches: int, method: str) -> list[float]:
    return [_saving(rows, microbatches, method, f"{slowdown:g}") for slowdown in SLOWDOWNS]


def _finish(figure: Figure, axes: Axes, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=160)
