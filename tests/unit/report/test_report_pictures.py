"""What pictures show, number by number: lines, bars and texts are read back from the figure that is saved."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from perseus_ds.plan import PlanSet
from perseus_ds.report.contents.figures import Compared, Figures, PerPipeline, Quantity, Saving
from perseus_ds.report.pictures.causes import draw_causes
from perseus_ds.report.pictures.emulation import Series, draw_emulation
from perseus_ds.report.pictures.frontier import draw_frontier
from perseus_ds.report.pictures.saving import bars, draw_saving
from perseus_ds.report.pictures.timeline import draw_timelines
from perseus_ds.report.timeline.energy_causes import Causes
from perseus_ds.run_directory import RecordedIteration

Drawn = Callable[[], Figure]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Return the figure that was saved last, with nothing written."""
    saved: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: saved.append(figure))
    return lambda: saved[-1]


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [one for one in axes.lines if str(one.get_label()).startswith(label)]
    return list(found.get_xdata()), list(found.get_ydata())


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


MEASURED = PerPipeline((1.0, 500.0), (1.01, 430.0))


def test_the_frontier_shows_plans_their_bound_and_where_the_job_runs(
    plans: PlanSet, drawn: Drawn, tmp_path: Path
) -> None:
    chosen, baseline = plans.plan(2), plans.baseline
    draw_frontier(chosen, MEASURED, tmp_path / "frontier.png", title="t", subtitle="s")
    above, below = drawn().axes
    times_s = plans.iteration_time_s.tolist()
    assert line(above, "least that any plan") == (times_s, plans.lower_bound_j.tolist())
    assert line(above, "plans on real clocks") == (times_s, plans.energy_j.tolist())
    assert line(above, "all clocks at maximum") == ([baseline.iteration_time_s], [baseline.energy_j])
    assert line(above, "the job's plan, predicted") == ([chosen.iteration_time_s], [chosen.energy_j])
    assert line(above, "default clocks, measured") == ([1.0], [500.0])
    assert line(above, "the job's plan, measured") == ([1.01], [430.0])
    assert f"{chosen.saving_pct:.1f} % saved,\n+{chosen.slowdown_pct:.1f} % time" in texts(above)
    marked = {text.get_text(): text.xy[0] for text in above.texts if "$" in text.get_text()}
    assert marked == {"$T_{min}$": plans.t_min_s, "$T^*$": plans.t_star_s}
    (gap,) = below.lines
    assert list(gap.get_ydata()) == plans.waiting_gap_pct.tolist()


def test_nothing_measured_is_shown_where_nothing_was(plans: PlanSet, drawn: Drawn, tmp_path: Path) -> None:
    draw_frontier(plans.plan(0), None, tmp_path / "frontier.png", title="t", subtitle="s")
    assert not [one for one in drawn().axes[0].lines if "measured" in str(one.get_label())]


def found(predicted: Saving | None = None) -> Figures:
    rows = (
        Compared(Quantity.TIME, "s", 2.0, 2.02),
        Compared(Quantity.ENERGY, "J", 1000.0, 850.0),
        Compared(Quantity.POWER, "W", 500.0, 850.0 / 2.02),
    )
    return Figures(
        "a job", simulated=False, rows=rows, measured=None, predicted=predicted, planned=None, gap_pct=None
    )


def test_the_prediction_stands_on_the_measured_baseline() -> None:
    """A plan that promises 20 % less at 25 % more time: of what was measured at default clocks."""
    promised = found(Saving(20.0, 25.0, "plan"))
    shown = {row.quantity: bars(row, promised) for row in promised.rows}
    assert [bar.value for bar in shown[Quantity.TIME]] == [2.0, 2.02, 2.5]
    assert [bar.value for bar in shown[Quantity.ENERGY]] == [1000.0, 850.0, 800.0]
    assert [bar.value for bar in shown[Quantity.POWER]] == [500.0, 850.0 / 2.02, pytest.approx(320.0)]
    assert [bar.predicted for bar in shown[Quantity.ENERGY]] == [False, False, True]
    assert [bar.text for bar in shown[Quantity.ENERGY]] == ["1000", "850.0\n-15.0 %", "800.0\n-20.0 %"]


def test_without_a_plan_nothing_is_predicted() -> None:
    assert [len(bars(row, found())) for row in found().rows] == [2, 2, 2]


def test_every_quantity_has_its_panel(drawn: Drawn, tmp_path: Path) -> None:
    draw_saving(found(Saving(20.0, 25.0, "plan")), tmp_path / "saving.png", title="t", subtitle="s")
    panels = drawn().axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "time per iteration (s)",
        "energy per iteration (J)",
        "average power (W)",
    ]
    assert [[bar.get_height() for bar in axes.patches] for axes in panels[:2]] == [
        [2.0, 2.02, 2.5],
        [1000.0, 850.0, 800.0],
    ]
    assert texts(panels[1]) == ["1000", "850.0\n-15.0 %", "800.0\n-20.0 %"]


def test_causes_stand_end_to_end_and_say_their_sum(drawn: Drawn, tmp_path: Path) -> None:
    before = Causes("baseline", working_j=700.0, fixed_j=10.0, bubbles_j=290.0)
    after = Causes("perseus", working_j=600.0, fixed_j=10.0, bubbles_j=240.0)
    draw_causes([before, after], tmp_path / "causes.png", title="t", subtitle="s")
    (axes,) = drawn().axes
    stretches = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert stretches == [(0, 700), (700, 10), (710, 290), (0, 600), (600, 10), (610, 240)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["default clocks", "the plan"]
    assert texts(axes) == ["700.0", "290.0", "  1000 J", "600.0", "240.0", "  850.0 J"]


def test_an_emulated_job_has_a_panel_for_time_energy_and_power(drawn: Drawn, tmp_path: Path) -> None:
    runs = [
        Series(name, np.array([2.0, 2.5]), np.array([1000.0, 1200.0]) * share, np.array([500.0, 480.0]), 0.5)
        for name, share in (("default clocks", 1.0), ("the plan", 0.8))
    ]
    draw_emulation(runs, tmp_path / "job.png", subtitle="16 GPUs")
    time, energy, power = drawn().axes
    assert [axes.get_title(loc="left") for axes in (time, energy, power)] == [
        "iteration time (s)",
        "energy (kJ)",
        "power of the job (kW)",
    ]
    assert line(time, "the plan") == ([0, 1], [2.0, 2.5])
    assert [list(one.get_ydata()) for one in energy.lines] == [[1.0, 1.2], [0.8, 0.96]]
    assert [list(one.get_xdata()) for one in power.lines] == [[0.0, 0.5]] * 2


def test_the_key_of_a_timeline_has_an_entry_for_every_height(
    timelines: list[RecordedIteration], drawn: Drawn, tmp_path: Path
) -> None:
    draw_timelines(timelines, tmp_path / "timeline.png", title="t", subtitle="s")
    figure = drawn()
    said = [text.get_text() for text in figure.texts]
    assert [text for text in said if text in {"forward", "backward"}] == ["forward", "backward"]
    assert f"waiting, at {timelines[-1].blocking_power_w:.0f} W" in said
    own = [one for one in figure.get_children() if isinstance(one, Rectangle)]
    boxes = [one.get_x() for one in own if one is not figure.patch]
    assert boxes
    assert all(0.0 <= left < 1.0 for left in boxes)
    assert boxes == sorted(set(boxes))
