"""Savings and slowdowns over latencies, a line for each kind of plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from players import Row

WIDTH_IN, HEIGHT_IN = 5.2, 6.0
AXES = "energy saved, %", "iteration longer by, %"
MARKERS = "osD^vPX"


def drawn(rows: Sequence[Row], path: Path) -> None:
    """Draw two panels for each number of microbatches, without noise; what saves nothing is left out."""
    sizes = sorted({row.microbatches for row in rows})
    figure = Figure(figsize=(WIDTH_IN * len(sizes), HEIGHT_IN), layout="constrained")
    panels = figure.subplots(len(AXES), len(sizes), squeeze=False, sharex=True)
    for column, size in zip(panels.T, sizes, strict=True):
        mine = [row for row in rows if row.microbatches == size and row.played[0][0] > 0.0]
        for which, (panel, label) in enumerate(zip(column, AXES, strict=True)):
            for kind, marker in zip(dict.fromkeys(row.kind for row in mine), MARKERS, strict=False):
                line = [(row.latency_ms, row.played[0][which]) for row in mine if row.kind == kind]
                panel.plot(*zip(*line, strict=True), marker=marker, markersize=5, alpha=0.8, label=kind)
            panel.set_ylabel(label)
            panel.grid(alpha=0.3)
        column[0].set_title(f"{size} microbatches")
        column[-1].set_xlabel("latency of a change, ms")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=120)
