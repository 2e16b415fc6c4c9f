"""Energy by cause, before and after, and the same beside a straggler: bars of the same parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perseus_ds.report import theme
from perseus_ds.report.number import short
from perseus_ds.report.timeline.energy_causes import Causes

_WIDTH_IN, _BAR_IN, _ROUND_IN = 9.6, 0.9, 2.1
_MARGINS = theme.Margins(left=1.9, right=0.9, bottom=0.95)
_PARTS = (
    ("working_j", "computing", theme.PERSEUS, ""),
    ("fixed_j", "transfers, reduction, step", "#c98a2b", "..."),
    ("bubbles_j", "bubbles: waiting for other stages", "#b9c0c9", "///"),
    ("straggler_j", "waiting for the straggler", "#d9b8c4", "xx"),
)
_NAMES = {"baseline": "default clocks", "perseus": "the plan"}
_LEAST_SHARE = 0.06  # of the longest bar: room for a number


def draw_causes(found: Sequence[Causes], path: Path, *, title: str, subtitle: str) -> Path:
    """Draw one bar per timeline and write the PNG."""
    longest_j = max(one.total_j for one in found)
    with theme.themed():
        figure = theme.titled_figure(
            _WIDTH_IN, _ROUND_IN + _BAR_IN * len(found), title=title, subtitle=subtitle
        )
        parts = [part for part in _PARTS if any(getattr(one, part[0]) for one in found)]
        axes = figure.add_subplot(theme.below_title(figure, 1, 1, margins=_MARGINS)[0, 0])
        for row, one in enumerate(found):
            left_j = 0.0
            for field, name, colour, hatch in parts:
                joules = getattr(one, field)
                axes.barh(
                    row,
                    joules,
                    0.62,
                    left_j,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    label=None if row else name,
                )
                if joules > _LEAST_SHARE * longest_j:
                    ink = "white" if field == "working_j" else theme.INK
                    box = {
                        "facecolor": "none" if field == "working_j" else "white",
                        "edgecolor": "none",
                        "pad": 1.5,
                    }
                    axes.text(
                        left_j + joules / 2, row, short(joules), ha="center", va="center", color=ink, bbox=box
                    )
                left_j += joules
            axes.text(left_j, row, f"  {short(left_j)} J", va="center", fontweight="bold")
        axes.set_yticks(range(len(found)), [_NAMES.get(one.name, one.name) for one in found])
        axes.invert_yaxis()
        axes.set_xlim(0.0, 1.12 * longest_j)
        axes.set_xlabel("energy of one pipeline, one iteration (J)")
        axes.tick_params(axis="y", length=0)
        theme.bare(axes)
        figure.legend(loc="lower center", ncols=len(parts))
        return theme.save(figure, path)
