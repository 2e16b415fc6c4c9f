"""Savings over latencies, a line for each kind of plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from players import Row

WIDTH_IN, HEIGHT_IN = 5.2, 4.2


def drawn(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for each number of microbatches, as played without noise."""
    sizes = sorted({row.microbatches for row in rows})
    figure = Figure(figsize=(WIDTH_IN * len(sizes), HEIGHT_IN), layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for panel, size in zip(panels, sizes, strict=True):
        mine = [row for row in rows if row.microbatches == size]
        for kind in dict.fromkeys(row.kind for row in mine):
            line = [(row.latency_ms, row.played[0][0]) for row in mine if row.kind == kind]
            panel.plot(*zip(*line, strict=True), marker="o", label=kind)
        panel.set_title(f"{size} microbatches")
        panel.set_xlabel("latency of a change, ms")
        panel.set_ylabel("energy saved, %")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=120)
