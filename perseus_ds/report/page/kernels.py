"""The kernel level at a glance: what each class wastes, and what switching latency leaves of the saving."""

from __future__ import annotations

from pathlib import Path

from perseus_ds.kernels import KernelPlan
from perseus_ds.report.page.render import figure, render_page, rounded, section
from perseus_ds.run_directory import write_whole

_MOST_CLASSES = 24
_NAMES = ("what it needs", "saved at no loss of time in all")


def write_kernels(plan: KernelPlan, path: Path, *, title: str, subtitle: str) -> Path:
    """Write the page; return its path."""
    latencies = [1e3 * one.latency_s for one in plan.left]
    left = {
        "name": "energy saved",
        "side": "after",
        "points": False,
        "x": rounded(latencies),
        "y": [_saved(plan)],
    }
    of = {"across": "switching latency, ms", "panels": ["energy saved, %"], "series": [left]}
    told = ", ".join(f"{ms:g} ms: {saved:.2f} %" for ms, saved in zip(latencies, _saved(plan), strict=True))
    write_whole(
        path,
        render_page(
            title=title,
            data={"courses": {"latencies": of}},
            job=subtitle,
            sections=[_classes(plan), section("What switching latency leaves", figures=[_latencies(told)])],
        ),
    )
    return path


def _saved(plan: KernelPlan) -> list[float]:
    return rounded([-one.energy_pct for one in plan.left])


def _latencies(told: str) -> dict[str, object]:
    caption = "Energy saved at no loss of time, against how long a change of clocks takes."
    return figure("latencies", caption, alt=f"{caption} {told}.")


def _classes(plan: KernelPlan) -> dict[str, object]:
    """The heaviest classes: their share of the iteration's energy, and what the strict choice saves of it."""
    rows = plan.classes[:_MOST_CLASSES]
    widest = max((row.energy_share_pct for row in rows), default=1.0)
    saved = {row.kernel: max(0.0, -row.energy_share_pct * row.energy_pct / 100.0) for row in rows}
    bars = [
        {
            "name": f"{row.kernel}, {row.pair}",
            "parts": [
                ("c0", f"{100.0 * (row.energy_share_pct - saved[row.kernel]) / widest:.2f}"),
                ("c2", f"{100.0 * saved[row.kernel] / widest:.2f}"),
            ],
        }
        for row in rows
    ]
    return section(
        "Kernel classes by energy",
        bars={"legend": list(zip(("c0", "c2"), _NAMES, strict=True)), "rows": bars},
        header=["class", "clocks", "energy, %", "of it saved, %"],
        rows=[
            [row.kernel, row.pair, f"{row.energy_share_pct:.2f}", f"{-row.energy_pct:.2f}"] for row in rows
        ],
        numbers=2,
    )
