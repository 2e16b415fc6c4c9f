"""The clocks of the job's plan: a heat map of model stage against microbatch, every kind apart."""

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
_MOST_NUMBERS = 32  # microbatches
_MOST_SEPARATED = 96  # of more, the lines between them would cover what they part
_DARK_FROM = 0.4  # of the colour scale


def draw_clocks(plan: FrequencyPlan, path: Path, *, title: str, subtitle: str) -> Path:
    """Draw one panel per kind and write the PNG."""
    kinds = kinds_of(plan)
    panel_in = min(3.4, max(1.2, 0.36 * plan.of.schedule.stages))
    with theme.themed():
        figure = theme.titled_figure(
            _WIDTH_IN, 2.1 + len(kinds) * (panel_in + 0.4), title=title, subtitle=subtitle
        )
        grid = theme.below_title(figure, len(kinds), 1, margins=_MARGINS, hspace=0.4 / panel_in)
        clocks = clocks_mhz(plan)
        scale = Normalize(np.nanmin(clocks), max(np.nanmax(clocks), np.nanmin(clocks) + 1))
        panels = [figure.add_subplot(grid[row, 0]) for row in range(len(kinds))]
        for axes, kind, matrix in zip(panels, kinds, clocks, strict=True):
            image = _panel(axes, matrix, scale)
            axes.set_title(kind.words, fontweight="bold")
        for axes in panels[:-1]:
            axes.tick_params(labelbottom=False)
        panels[-1].set_xlabel("microbatch")
        theme.colour_bar(figure, image, margins=_MARGINS, label="clock (MHz)")
        return theme.save(figure, path)


def kinds_of(plan: FrequencyPlan) -> list[Kind]:
    """Which kinds have clocks, in the order in which they are declared."""
    present = {kind for _, kind in plan.of.options}
    return [kind for kind in Kind if kind in present]


def clocks_mhz(plan: FrequencyPlan) -> NDArray[np.float64]:
    """Return the chosen clocks, means over their work; NaN where an order does not run that microbatch.

    Shape: [kinds, model stages, microbatches].
    """
    portions, kinds = plan.portions(), kinds_of(plan)
    microbatches = 1 + max(instruction.microbatch for instruction in portions)
    clocks = np.full((len(kinds), plan.of.schedule.stages, microbatches), np.nan)
    for instruction, shares in portions.items():
        options = plan.of.options[instruction.stage, instruction.kind]
        place = kinds.index(instruction.kind), instruction.stage, instruction.microbatch
        clocks[place] = sum(share * options.mean_mhz(option) for option, share in shares)
    return clocks


def _panel(axes: Axes, matrix: NDArray[np.float64], scale: Normalize) -> AxesImage:
    stages, microbatches = matrix.shape
    image = axes.imshow(matrix, aspect="auto", cmap="viridis_r", norm=scale, interpolation="nearest")
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if microbatches <= _MOST_SEPARATED:
        axes.set_xticks(np.arange(0.5, microbatches), minor=True)
    axes.set_yticks(np.arange(0.5, stages), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    if microbatches <= _MOST_NUMBERS:
        for (stage, microbatch), clock in np.ndenumerate(matrix):
            if np.isnan(clock):
                continue
            ink = "white" if scale(clock) > _DARK_FROM else theme.INK
            axes.text(microbatch, stage, f"{clock:.0f}", ha="center", va="center", fontsize=7.5, color=ink)
    return image
