"""The kernel level at a glance: what each class wastes, and what switching latency leaves of the saving."""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.axes import Axes

from perseus_ds.kernels import KernelPlan

sys.path.append(str(Path(__file__).resolve().parents[1] / "paper"))
import theme

_SIZE_IN = (9.6, 7.2)
_MARGINS = theme.Margins(left=3.3, right=0.45, bottom=0.65)
_MOST_CLASSES = 16
_LONGEST_NAME = 36


def draw_kernels(plan: KernelPlan, path: Path, *, title: str, subtitle: str) -> Path:
    """Draw both and write the PNG."""
    with theme.themed():
        figure = theme.titled_figure(*_SIZE_IN, title=title, subtitle=subtitle)
        grid = theme.below_title(figure, 2, 1, margins=_MARGINS, height_ratios=[2.4, 1.0], hspace=0.32)
        above, below = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
        _classes(above, plan)
        _latencies(below, plan)
        for axes in (above, below):
            theme.bare(axes)
            axes.grid(color=theme.GRID, linewidth=0.7)
            axes.set_axisbelow(True)
        return theme.save(figure, path)


def _classes(axes: Axes, plan: KernelPlan) -> None:
    """The heaviest classes: energy saved at the strict choice, as a share of the whole iteration."""
    rows = plan.classes[:_MOST_CLASSES][::-1]
    saved = [-row.energy_share_pct * row.energy_pct / 100.0 for row in rows]
    axes.barh(range(len(rows)), [row.energy_share_pct for row in rows], color=theme.GRID, label="its energy")
    axes.barh(range(len(rows)), saved, color=theme.PERSEUS, label="saved at no loss of time in all")
    axes.set_yticks(
        range(len(rows)), [f"{row.kernel[:_LONGEST_NAME]}  {row.pair}" for row in rows], fontsize=7
    )
    axes.set_xlabel("share of the iteration's energy, %")
    axes.legend(loc="lower right")


def _latencies(axes: Axes, plan: KernelPlan) -> None:
    axes.plot(
        [1e3 * left.latency_s for left in plan.left],
        [-left.energy_pct for left in plan.left],
        color=theme.PERSEUS,
        marker="o",
    )
    axes.set_ylim(0.0, 1.1 * max(1.0, *(-left.energy_pct for left in plan.left)))
    axes.set_xlabel("switching latency, ms")
    axes.set_ylabel("energy saved, %")
