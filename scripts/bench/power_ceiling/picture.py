"""The frontier as power against time lost: ours beside one clock and one power limit for all."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "paper"))
import theme
from baselines import Priced

_LOOKS = {
    "ours": (theme.PERSEUS, "o"),
    "one power limit for all": ("#4a7fb5", "D"),
    "one clock for all": ("#b0741a", "^"),
}
_MOST_LOST_PCT = 22.0
_MARGINS = theme.Margins(left=0.9, right=0.4, bottom=0.7)


def draw_ceiling(before: Priced, methods: Mapping[str, Priced], path: Path, *, shape: str) -> None:
    """Draw every plan that loses little enough, against the mean power of a pipeline that it leaves."""
    least_s = float(before.time_s[0])
    full_w = float(before.energy_j[0]) / least_s
    with theme.themed():
        figure = theme.titled_figure(
            9.6,
            5.4,
            title="Time lost under a power ceiling, emulated",
            subtitle=f"GPT-3 175B on A100 (profile of the Perseus artifact), {shape}",
        )
        axes = figure.add_subplot(theme.below_title(figure, 1, 1, margins=_MARGINS)[0, 0])
        for name, found in methods.items():
            colour, mark = _LOOKS[name]
            lost_pct = 100.0 * (found.time_s / least_s - 1.0)
            lower_pct = 100.0 * (1.0 - found.energy_j / found.time_s / full_w)
            shown = np.flatnonzero(lost_pct < _MOST_LOST_PCT)
            order = shown[np.argsort(lower_pct[shown])]
            axes.plot(
                lower_pct[order], lost_pct[order], "-", color=colour, marker=mark, markersize=3.5, label=name
            )
        axes.axvline(25.0, color=theme.FAINT_INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_xlabel("mean power of the pipeline below that at full clocks (%)")
        axes.set_ylabel("time lost (%)")
        axes.set_xlim(0.0)
        axes.set_ylim(0.0)
        axes.grid(color=theme.GRID, linewidth=0.7)
        axes.legend(loc="upper left")
        theme.bare(axes)
        theme.save(figure, path)
