"""The short table that rank 0 prints at the end of a job: plain text, 80 columns."""

from __future__ import annotations

import textwrap
from pathlib import Path

from perseus_ds.plan import certified
from perseus_ds.report.contents import Contents, read_contents
from perseus_ds.report.contents.figures import Compared, Figures, Saving, figures
from perseus_ds.report.number import short, signed

_COLUMNS = 80
_RULE = "-" * 66
_HEADINGS = f"{'':<28}{'baseline':>12}{'perseus':>12}{'difference':>14}"


def table(run_dir: Path) -> str:
    """Read the run directory and lay its figures out.

    Raises:
        PerseusError: the directory does not exist, or holds nothing of a job.
    """
    contents = read_contents(run_dir)
    return render(figures(contents), contents)


def render(found: Figures, contents: Contents) -> str:
    """Lay the figures out; plain ASCII, so that every log file takes it."""
    lines = [*_folded(f"perseus: {found.job}"), _RULE]
    if found.rows:
        lines += [_HEADINGS, *map(_line, found.rows), _RULE]
    lines += _savings(found)
    for part in contents.missing:
        lines += _folded(f"missing {part.file}: {part.why}")
    return "\n".join(lines)


def _line(row: Compared) -> str:
    name = f"{row.name}, {row.unit}"
    before, after = short(row.baseline, digits=5), short(row.perseus, digits=5)
    return f"{name:<28}{before:>12}{after:>12}{signed(row.difference_pct, decimals=2):>12} %"


def _savings(found: Figures) -> list[str]:
    lines = []
    if found.measured is not None:
        where = "simulated, " if found.simulated else ""
        lines += _folded(_saving("saving measured", found.measured, where))
        lines += _within(found.measured)
    if found.predicted is not None:
        lines.append(_saving("saving predicted", found.predicted, ""))
        lines += _within(found.predicted)
    if found.gap_pct is not None:
        lines += _folded(certified(found.gap_pct))
    return lines


def _saving(name: str, saving: Saving, where: str) -> str:
    slower = signed(saving.slowdown_pct, decimals=2)
    return f"{name:<18}{saving.saving_pct:>8.2f} %{slower:>9} % time  ({where}{saving.source})"


def _within(saving: Saving) -> list[str]:
    if saving.within_pct is None or saving.slowdown_within_pct is None:
        return []
    return [f"{'  give or take':<18}{saving.within_pct:>8.2f} %{saving.slowdown_within_pct:>9.2f} %"]


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, subsequent_indent="    ")
