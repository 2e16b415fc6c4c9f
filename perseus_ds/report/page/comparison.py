"""The page of two runs: their rows, their frontiers, and their iterations in one figure each."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.report.contents.comparison import Comparison, Run, labels
from perseus_ds.report.contents.gpus import courses
from perseus_ds.report.page.figure_data import shown_plans
from perseus_ds.report.page.render import figure, render_page, rounded, section

_LOOKS = ("before", "after")
_LEGEND = ("before", "accent")


def comparison_page(found: Comparison) -> str:
    """Assemble it from what both runs have."""
    names = labels(found.runs)
    data: dict[str, object] = {"courses": drawn} if (drawn := _figures(found.runs, names)) else {}
    legend = list(zip(_LEGEND, names, strict=True))
    parts = [section("Side by side", header=["", *names], rows=found.rows)]
    for name, heading, caption in _HEADINGS:
        if name in drawn:
            alt = f"{heading} of {names[0]} and {names[1]}. {found.verdict}"
            parts.append(section(heading, figures=[figure(name, caption, alt=alt, legend=legend)]))
    return render_page(
        title=f"{names[0]} and {names[1]} compared",
        data=data,
        simulated=any(run.found.simulated for run in found.runs),
        sentences=[found.verdict],
        notes=[
            f"{name}: {p.file}: {p.why}"
            for name, run in zip(names, found.runs, strict=True)
            for p in run.contents.missing
        ],
        sections=parts,
    )


_HEADINGS = (
    ("frontiers", "Frontiers", "Energy of one pipeline against iteration time, of each run's own plans."),
    ("over_the_run", "Over the run", "Iterations at the plan; a dot is the mean of neighbouring ones."),
)


def _figures(runs: Sequence[Run], names: Sequence[str]) -> dict[str, object]:
    frontiers, course_rows = [], []
    for look, name, run in zip(_LOOKS, names, runs, strict=True):
        if (plan := run.contents.chosen) is not None:
            shown = shown_plans(plan)
            xs, ys = (rounded(values[shown]) for values in (plan.of.iteration_time_s, plan.of.energy_j))
            frontiers.append({"name": name, "side": look, "points": False, "x": xs, "y": [ys]})
        for one in courses(run.contents):
            if one.side == "perseus":
                rows = [rounded(one.time_s), rounded(one.power_w)]
                course_rows.append(
                    {"name": name, "side": look, "points": True, "x": list(one.iteration), "y": rows}
                )
    drawn: dict[str, object] = {}
    if frontiers:
        drawn["frontiers"] = {"across": "iteration time, s", "panels": ["energy, J"], "series": frontiers}
    if course_rows:
        panels = ["iteration time, s", "power of all GPUs, W"]
        drawn["over_the_run"] = {"across": "iteration", "panels": panels, "series": course_rows}
    return drawn
