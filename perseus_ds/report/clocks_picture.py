"""The clocks of the job's plan: a heat map of stage against microbatch, forward and backward apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from perseus_ds.plan import FrequencyPlan
from perseus_ds.report import theme
from perseus_ds.schedule import Kind

_WIDTH_IN = 13.3
_MARGINS = theme.Margins(left=0.85, right=1.4, bottom=0.65)
_KINDS = (Kind.FORWARD, Kind.BACKWARD)
_MOST_NUMBERS = 32  # microbatches
_DARK_FROM = 0.4  # of the colour scale


def draw_clocks(plan: FrequencyPlan, path: Path, *, title: str, subtitle: str) -> Path:
    """Draw one panel per kind and write the PNG."""
    schedule = plan.of.schedule
    panel_in = min(3.4, max(1.2, 0.36 * schedule.stages))
    with theme.themed():
        figure = theme.titled_figure(_WIDTH_IN, 2.1 + 2 * (panel_in + 0.4), title=title, subtitle=subtitle)
        grid = theme.below_title(figure, len(_KINDS), 1, margins=_MARGINS, hspace=0.4 / panel_in)
        clocks = clocks_mhz(plan)
        scale = Normalize(np.nanmin(clocks), max(np.nanmax(clocks), np.nanmin(clocks) + 1))
        panels = [figure.add_subplot(grid[row, 0]) for row in range(len(_KINDS))]
        for axes, kind, matrix in zip(panels, _KINDS, clocks, strict=True):
            image = _panel(axes, matrix, scale)
            axes.set_title(kind.name.lower(), fontweight="bold")
        panels[0].tick_params(labelbottom=False)
        panels[-1].set_xlabel("microbatch")
        theme.colour_bar(figure, image, margins=_MARGINS, label="clock (MHz)")
        return theme.save(figure, path)


def clocks_mhz(plan: FrequencyPlan) -> NDArray[np.float64]:
    """Return the chosen clocks; NaN where an order does not run that microbatch.

    Shape: [forward and backward, stages, microbatches].
    """
    schedule = plan.of.schedule
    clocks = np.full((len(_KINDS), schedule.stages, schedule.microbatches), np.nan)
    for instruction, choice in plan.choices().items():
        options = plan.of.options[instruction.stage, instruction.kind]
        place = _KINDS.index(instruction.kind), instruction.stage, instruction.microbatch
        clocks[place] = options.clock_mhz[choice]
    return clocks


def _panel(axes: Axes, matrix: NDArray[np.float64], scale: Normalize) -> AxesImage:
    stages, microbatches = matrix.shape
    image = axes.imshow(matrix, aspect="auto", cmap="viridis_r", norm=scale, interpolation="nearest")
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(0.5, microbatches), minor=True)
    axes.set_yticks(np.arange(0.5, stages), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    if microbatches <= _MOST_NUMBERS:
        for (stage, microbatch), clock in np.ndenumerate(matrix):
            ink = "white" if scale(clock) > _DARK_FROM else theme.INK
            axes.text(microbatch, stage, f"{clock:.0f}", ha="center", va="center", fontsize=7.5, color=ink)
    return image
