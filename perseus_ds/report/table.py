"""The short table that rank 0 prints at the end of a job: plain text, 80 columns."""

from __future__ import annotations

from pathlib import Path

from perseus_ds.report.contents import Contents, read_contents
from perseus_ds.report.figures import Figures, Row, Saving, figures

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
    lines = [f"perseus: {found.job}", _RULE]
    if found.rows:
        lines += [_HEADINGS, *map(_line, found.rows), _RULE]
    lines += _savings(found)
    lines += [f"missing {part.file}: {part.why}" for part in contents.missing]
    return "\n".join(lines)


def _line(row: Row) -> str:
    name = f"{row.name}, {row.unit}"
    return f"{name:<28}{row.baseline:>12.5g}{row.perseus:>12.5g}{row.difference_pct:>+12.2f} %"


def _savings(found: Figures) -> list[str]:
    lines = []
    if found.measured is not None:
        lines.append(_saving("measured", found.measured, "simulated GPU, " if found.simulated else ""))
    if found.predicted is not None:
        lines.append(_saving("predicted", found.predicted, ""))
    if found.gap_pct is not None:
        lines.append(f"certified  no plan as fast needs {found.gap_pct:.3f} % less than this one")
    return lines


def _saving(how: str, saving: Saving, where: str) -> str:
    percents = f"{saving.saving_pct:.2f} % energy saved, {saving.slowdown_pct:+.2f} % time"
    return f"{how:<10} {percents} ({where}{saving.source})"
