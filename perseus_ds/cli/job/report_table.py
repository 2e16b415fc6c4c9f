"""The short table of a report, and that of two runs: plain ASCII, 80 columns."""

from __future__ import annotations

from perseus_ds.cli.terminal import bold, grid, sentences
from perseus_ds.plan import certified
from perseus_ds.report.figures import (
    Compared,
    Comparison,
    Figures,
    Saving,
    explanation,
    headline,
    labels,
    with_error,
)
from perseus_ds.report.read import Contents, short, signed

_WIDEST_CELL = 24


def report_table(contents: Contents, found: Figures) -> str:
    """Lay the figures of one run out; what is missing is named, with the reason."""
    parts = [f"perseus: {found.job}", bold(_ascii(headline(found)))]
    if found.rows:
        headings = ["", "default clocks", "the plan", "difference"]
        parts += ["", grid(headings, [_cells(row) for row in found.rows])]
    if savings := _savings(found):
        parts += ["", grid(["saving", "energy", "time", "from"], savings, texts=4)]
    if text := explanation(contents, found):
        parts.append(text)
    if found.gap_pct is not None:
        parts.append(f"The plan is {certified(found.gap_pct)}.")
    parts += [f"missing {part.file}: {part.why}" for part in contents.missing]
    return sentences("\n".join(parts))


def comparison_table(found: Comparison) -> str:
    """Lay two runs out beside each other."""
    rows = [[name, *(_cut(value) for value in values)] for name, *values in found.rows]
    return f"{grid(['', *map(_cut, labels(found.runs))], rows, texts=3)}\n{sentences(found.verdict)}"


def _cells(row: Compared) -> list[str]:
    name = f"{row.name}, {row.unit}"
    before, after = short(row.baseline, digits=5), short(row.perseus, digits=5)
    return [name, before, after, f"{signed(row.difference_pct, decimals=2)} %"]


def _savings(found: Figures) -> list[list[str]]:
    where = "simulated, " if found.simulated else ""
    given = (("measured", found.measured, where), ("expected", found.predicted, ""))
    return [_saving(name, saving, source) for name, saving, source in given if saving is not None]


def _saving(name: str, saving: Saving, where: str) -> list[str]:
    slower = with_error(saving.slowdown_pct, saving.slowdown_within_pct, decimals=2, sign=True)
    energy = with_error(saving.saving_pct, saving.within_pct, decimals=2)
    return [name, _ascii(energy), _ascii(slower), f"{where}{saving.source}"]


def _ascii(text: str) -> str:
    return text.replace("\N{PLUS-MINUS SIGN}", "+-")


def _cut(text: str) -> str:
    text = _ascii(text)
    return text if len(text) <= _WIDEST_CELL else f"{text[: _WIDEST_CELL - 2]}.."
