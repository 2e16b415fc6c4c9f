"""The profile that plans rest on: time against energy of every computation, with errors and chosen points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from perseus_ds.plan import FrequencyPlan
from perseus_ds.plan.playing.play import play
from perseus_ds.profile import Computation, Point, Profile
from perseus_ds.report import theme
from perseus_ds.schedule import Kind

_MARGINS = theme.Margins(left=0.85, right=0.35, bottom=0.95)
_MOST_PANELS = 16
_LOOKS = {Kind.FORWARD: (theme.PERSEUS, "o"), Kind.BACKWARD: ("#b0741a", "s")}
_OTHER_LOOKS = (("#4a7fb5", "D"), (theme.MEASURED, "^"), (theme.BOUND, "v"))


def draw_profile(
    profile: Profile, plan: FrequencyPlan | None, path: Path, *, title: str, subtitle: str
) -> Path:
    """Draw a panel per stage (the first sixteen) and write the PNG."""
    stages = list(range(profile.stages))[:_MOST_PANELS]
    columns = min(4, len(stages))
    rows = math.ceil(len(stages) / columns)
    chosen = {} if plan is None else _chosen(plan)
    with theme.themed():
        figure = theme.titled_figure(3.1 * columns + 1.3, 2.2 * rows + 2.3, title=title, subtitle=subtitle)
        grid = theme.below_title(figure, rows, columns, margins=_MARGINS, hspace=0.5, wspace=0.28)
        for stage in stages:
            axes = figure.add_subplot(grid[stage // columns, stage % columns])
            _panel(axes, profile, stage, chosen)
        figure.supxlabel("time (s)", y=0.55 / figure.get_figheight(), fontsize=10)
        figure.supylabel("energy (J)", x=0.2 / figure.get_figwidth(), fontsize=10)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=4)
        return theme.save(figure, path)


def _panel(axes: Axes, profile: Profile, stage: int, chosen: Mapping[Computation, Counter[int]]) -> None:
    kinds = sorted((k for s, k in profile.points if s == stage), key=lambda kind: kind.value)
    for number, kind in enumerate(kinds):
        points = profile.of(stage, kind)
        colour, mark = _LOOKS.get(kind, _OTHER_LOOKS[number % len(_OTHER_LOOKS)])
        _curve(axes, points, colour, mark, label=f"{kind.words}, with standard error")
        used = chosen.get((stage, kind), Counter())
        marked = [point for point in points if point.clock_mhz in used]
        axes.plot(
            [point.time_s for point in marked],
            [point.energy_j for point in marked],
            mark,
            markersize=8,
            markerfacecolor="none",
            markeredgecolor=theme.INK,
            linestyle="none",
            label="clocks that the plan uses" if number == len(kinds) - 1 else None,
        )
    axes.set_title(f"stage {stage}", fontweight="bold")
    axes.grid(color=theme.GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    theme.bare(axes)


def _curve(axes: Axes, points: Sequence[Point], colour: str, mark: str, *, label: str) -> None:
    axes.errorbar(
        [point.time_s for point in points],
        [point.energy_j for point in points],
        xerr=[point.time_se_s for point in points],
        yerr=[point.energy_se_j for point in points],
        color=colour,
        marker=mark,
        markersize=2.6,
        linewidth=0.8,
        capsize=2.0,
        label=label,
    )


def _chosen(plan: FrequencyPlan) -> Mapping[Computation, Counter[int]]:
    """How often the plan runs each computation at which clock."""
    used: dict[Computation, Counter[int]] = {}
    for one in play(plan):
        if one.clock_mhz is not None:
            used.setdefault((one.instruction.stage, one.instruction.kind), Counter())[one.clock_mhz] += 1
    return used
