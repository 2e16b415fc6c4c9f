"""An emulated job before and after: time and energy of every iteration, and the power over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from perseus_ds.report import theme

_SIZE_IN = (10.6, 7.2)
_MARGINS = theme.Margins(left=1.0, right=0.35, bottom=0.95)
_LOOKS = ((theme.BASELINE, "--"), (theme.PERSEUS, "-"))


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One run: a value per iteration, and mean power per bin of time.

    Units: seconds, joules, watts.
    """

    name: str
    iteration_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    power_w: NDArray[np.float64]
    bin_s: float


def draw_emulation(series: Sequence[Series], path: Path, *, subtitle: str) -> Path:
    """Draw three panels, all runs in each, and write the PNG."""
    with theme.themed():
        figure = theme.titled_figure(
            *_SIZE_IN, title="The job before and after, simulated", subtitle=subtitle
        )
        grid = theme.below_title(figure, 3, 1, margins=_MARGINS, hspace=0.55, height_ratios=[1, 1, 1.3])
        panels = [figure.add_subplot(grid[row, 0]) for row in range(3)]
        for one, (colour, line) in zip(series, _LOOKS, strict=False):
            iteration = np.arange(len(one.iteration_s))
            panels[0].step(iteration, one.iteration_s, line, color=colour, label=one.name, where="mid")
            panels[1].step(iteration, one.energy_j / 1e3, line, color=colour, where="mid")
            time_s = one.bin_s * np.arange(len(one.power_w))
            panels[2].plot(time_s, one.power_w / 1e3, line, color=colour, linewidth=1.0)
        _label(panels[0], "iteration time (s)", "iteration")
        _label(panels[1], "energy (kJ)", "iteration")
        _label(panels[2], "power of the job (kW)", "time (s)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=2)
        return theme.save(figure, path)


def _label(axes: Axes, title: str, across: str) -> None:
    axes.set_title(title, fontweight="bold")
    axes.set_xlabel(across, labelpad=1.0)
    axes.set_ylim(0.0, 1.08 * axes.get_ylim()[1])
    axes.margins(x=0.01)
    axes.grid(color=theme.GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    theme.bare(axes)
