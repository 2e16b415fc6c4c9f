"""Tables and sentences for a terminal: 80 columns, and colour only where a person looks."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

COLUMNS = 80


def is_watched(stream: TextIO) -> bool:
    """Whether a person reads this stream in a terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Lay rows out in columns; the first ``texts`` columns are text and the others numbers, flush right.

    Headings are bold in a terminal, unless ``NO_COLOR`` is set. Nothing wraps: the caller keeps rows short.
    """
    from rich.console import Console  # noqa: PLC0415  # a tenth of a second that only tables pay
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = io.StringIO()
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(headings)
    )
    for place, heading in enumerate(headings):
        table.add_column(
            Text(heading), justify="left" if place < texts else "right", no_wrap=True, overflow="crop"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    coloured = _is_coloured()
    console = Console(
        file=drawn, width=COLUMNS, force_terminal=coloured, no_color=not coloured, legacy_windows=False
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines())


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return "1 stage", "4 stages"."""
    return f"{number} {noun}{'' if number == 1 else plural}"


def bold(text: str) -> str:
    """Emphasise a line where a person looks."""
    return f"\x1b[1m{text}\x1b[0m" if _is_coloured() else text


def _is_coloured() -> bool:
    return is_watched(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def sentences(text: str, *, indent: str = "  ") -> str:
    """Fold text at 80 columns, each line of it by itself; continued lines are indented."""
    return "\n".join(_folded(line, COLUMNS, indent) for line in text.splitlines())


def for_stream(text: str, stream: TextIO) -> str:
    """Fold what is wider than the terminal that it goes to; a file or a pipe gets every line whole."""
    if not is_watched(stream):
        return text
    width = shutil.get_terminal_size((COLUMNS, 24)).columns
    return "\n".join(_folded(line, width, "  ") for line in text.splitlines())


def _folded(line: str, width: int, indent: str) -> str:
    if len(line) <= width or "\x1b" in line:
        return line
    return "\n".join(
        textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )
