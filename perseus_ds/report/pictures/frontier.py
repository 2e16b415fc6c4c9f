"""Energy against iteration time: every plan, the certified bound below, and where the job runs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes

from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.report import theme
from perseus_ds.report.contents.figures import PerPipeline
from perseus_ds.report.number import signed

_SIZE_IN = (9.6, 6.6)
_MANY = 100
_MARGINS = theme.Margins(left=1.05, right=0.45, bottom=0.65)


def draw_frontier(
    chosen: FrequencyPlan, measured: PerPipeline | None, path: Path, *, title: str, subtitle: str
) -> Path:
    """Draw the frontier over its certified gap and write the PNG."""
    plans = chosen.of
    with theme.themed():
        figure = theme.titled_figure(*_SIZE_IN, title=title, subtitle=subtitle)
        grid = theme.below_title(figure, 2, 1, margins=_MARGINS, height_ratios=[4.0, 1.0], hspace=0.12)
        above = figure.add_subplot(grid[0, 0])
        below = figure.add_subplot(grid[1, 0], sharex=above)
        _energies(above, plans, measured)
        _marks(above, chosen, measured)
        _gap(below, plans)
        for axes in (above, below):
            theme.bare(axes)
            axes.grid(color=theme.GRID, linewidth=0.7)
            axes.set_axisbelow(True)
        above.tick_params(labelbottom=False)
        above.legend(loc="upper right", bbox_to_anchor=(0.93, 1.0), frameon=True, framealpha=1.0)
        return theme.save(figure, path)


def _energies(axes: Axes, plans: PlanSet, measured: PerPipeline | None) -> None:
    """Draw plans and bound; what lies under the bound no plan can reach."""
    time_s, energy_j, bound_j = plans.iteration_time_s, plans.energy_j, plans.lower_bound_j
    shown_j = [plans.baseline.energy_j, *energy_j.tolist(), *bound_j.tolist()]
    if measured is not None:
        shown_j += [measured.baseline[1], measured.perseus[1]]
    lowest_j, highest_j = min(shown_j), max(shown_j)
    floor_j = lowest_j - 0.12 * (highest_j - lowest_j)
    axes.fill_between(time_s, floor_j, bound_j, color=theme.BOUND, alpha=0.07, linewidth=0)
    axes.plot(
        time_s,
        bound_j,
        color=theme.BOUND,
        linewidth=1.0,
        label="least that any plan as fast needs (certified)",
    )
    axes.plot(
        time_s,
        energy_j,
        color=theme.PERSEUS,
        linewidth=1.0,
        marker="o",
        markersize=3.5 if len(plans) < _MANY else 1.8,
        label=f"plans on real clocks ({len(plans)})",
    )
    axes.set_ylim(floor_j, highest_j + 0.1 * (highest_j - floor_j))
    axes.set_ylabel("energy of one pipeline,\none iteration (J)")
    ends = ((plans.t_min_s, "$T_{min}$", "right", -5), (plans.t_star_s, "$T^*$", "left", 5))
    for when_s, name, side, points in ends:
        axes.axvline(when_s, color=theme.FAINT_INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            name,
            (when_s, 0.0),
            (points, 6),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            color=theme.FAINT_INK,
        )
    axes.margins(x=0.07)


def _marks(axes: Axes, chosen: FrequencyPlan, measured: PerPipeline | None) -> None:
    baseline = chosen.of.baseline
    axes.plot(
        baseline.iteration_time_s,
        baseline.energy_j,
        "s",
        color=theme.BASELINE,
        markersize=9,
        label="all clocks at maximum, predicted",
    )
    axes.plot(
        chosen.iteration_time_s,
        chosen.energy_j,
        "o",
        color=theme.PERSEUS,
        markersize=11,
        label="the job's plan, predicted",
    )
    _saved(axes, chosen)
    if measured is not None:
        marks = (
            (measured.baseline, "s", "default clocks, measured"),
            (measured.perseus, "o", "the job's plan, measured"),
        )
        for (time_s, energy_j), marker, name in marks:
            axes.plot(
                time_s,
                energy_j,
                marker,
                markerfacecolor="none",
                markeredgecolor=theme.MEASURED,
                markeredgewidth=1.8,
                markersize=13,
                linestyle="none",
                label=name,
            )


def _saved(axes: Axes, chosen: FrequencyPlan) -> None:
    """Draw the arrow from the baseline to the plan, with what it saves."""
    baseline = chosen.of.baseline
    start = (baseline.iteration_time_s, baseline.energy_j)
    end = (chosen.iteration_time_s, chosen.energy_j)
    arrow = {"arrowstyle": "-|>", "color": theme.INK, "shrinkA": 8, "shrinkB": 9}
    axes.annotate("", end, start, arrowprops=arrow)
    axes.annotate(
        f"{chosen.saving_pct:.1f} % saved,\n{signed(chosen.slowdown_pct, decimals=1)} % time",
        ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2),
        (10, 0),
        textcoords="offset points",
        va="center",
        backgroundcolor="white",
    )


def _gap(axes: Axes, plans: PlanSet) -> None:
    gap_pct = plans.waiting_gap_pct
    axes.fill_between(plans.iteration_time_s, gap_pct, color=theme.BOUND, alpha=0.18, linewidth=0)
    axes.plot(plans.iteration_time_s, gap_pct, color=theme.BOUND, linewidth=1.0)
    highest = 1.25 * max(float(gap_pct.max()), 1e-3)
    axes.set_ylim(-0.06 * highest, highest)  # a gap of nothing is seen too
    axes.set_ylabel("gap over\nthat time (%)")
    axes.set_xlabel("iteration time (s)")
