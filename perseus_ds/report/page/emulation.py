"""An emulated job before and after: time and energy of every iteration, and the power over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_ds.report.number import short
from perseus_ds.report.page.render import figure, render_page, rounded, section
from perseus_ds.run_directory import write_whole

_LOOKS = ("before", "after")
_MOST_BINS = 2000


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


def write_emulation(series: Sequence[Series], path: Path, *, subtitle: str) -> Path:
    """Write the page; return its path."""
    legend = [(look, one.name) for look, one in zip(("before", "accent"), series, strict=True)]
    told = " ".join(
        f"{one.name}: {short(float(one.iteration_s.mean()))} s and {short(float(one.energy_j.mean()))} J"
        " per iteration."
        for one in series
    )
    captions = {
        "iterations": "A line per run, a value per iteration.",
        "power": "Mean power of all GPUs together.",
    }
    write_whole(
        path,
        render_page(
            title="The job before and after, simulated",
            data={"courses": {"iterations": _iterations(series), "power": _power(series)}},
            simulated=True,
            job=subtitle,
            sentences=[told],
            sections=[
                section(
                    heading,
                    figures=[figure(name, captions[name], alt=f"{captions[name]} {told}", legend=legend)],
                )
                for name, heading in (("iterations", "Iterations"), ("power", "Power"))
            ],
        ),
    )
    return path


def _iterations(series: Sequence[Series]) -> dict[str, object]:
    rows = [
        {
            "name": one.name,
            "side": look,
            "points": False,
            "x": list(range(len(one.iteration_s))),
            "y": [rounded(one.iteration_s), rounded(one.energy_j / 1e3)],
        }
        for look, one in zip(_LOOKS, series, strict=True)
    ]
    return {"across": "iteration", "panels": ["iteration time, s", "energy, kJ"], "series": rows}


def _power(series: Sequence[Series]) -> dict[str, object]:
    rows = []
    for look, one in zip(_LOOKS, series, strict=True):
        join = max(1, -(-len(one.power_w) // _MOST_BINS))
        power_w = [one.power_w[at : at + join].mean() for at in range(0, len(one.power_w), join)]
        xs = rounded(one.bin_s * join * (np.arange(len(power_w)) + 0.5))
        rows.append(
            {
                "name": one.name,
                "side": look,
                "points": False,
                "x": xs,
                "y": [rounded(np.array(power_w) / 1e3)],
            }
        )
    return {"across": "time, s", "panels": ["power of the job, kW"], "series": rows}
