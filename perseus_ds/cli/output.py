"""Print results, tables and remarks; read numbers and words of the command line."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from perseus_ds.errors import ConfigError, ProfileError

# Tables and sentences for a terminal: 80 columns, and colour only where a person looks.

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


DONE = 0
REFUSED = 1
USAGE = 2  # by argparse
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def say(text: str) -> None:
    """Print a result."""
    sys.stdout.write(for_stream(text, sys.stdout) + "\n")


def say_now(text: str) -> None:
    """Print a result that somebody waits for while we go on."""
    say(text)
    sys.stdout.flush()


def remark(text: str) -> None:
    """Print what is not the result: an assumption, a warning, a refusal."""
    sys.stderr.write(for_stream(f"perseus-ds: {text}", sys.stderr) + "\n")


@contextmanager
def names_profile(path: Path) -> Iterator[None]:
    """Put a profile's path before what is wrong with it, where that was found after it had been read."""
    try:
        yield
    except ProfileError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from error


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None] | None]:
    """Yield what takes the fraction done, or None when nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  # a tenth of a second that only a watcher pays
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda done: progress.update(task, completed=done)


# Numbers and words on the command line: read strictly, refused in words.


def positive(text: str) -> float:
    """Read a finite number above 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def not_negative(text: str) -> float:
    """Read a finite number from 0 on."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def settings(words: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` as often as it was given: a number, true, false or null as JSON has it, else text.

    Raises:
        ConfigError: a word without "=", or a key that was given twice.
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key in found:
            raise ConfigError(f"--set {word}", hint="expected KEY=VALUE, each key once")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


def count(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def index(text: str) -> int:
    """Read a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def refuse_idle(remedy: str, **flags: object) -> None:
    """Refuse flags that would do nothing as the others are; one that was not given is None or False.

    Raises:
        ConfigError: naming the first of them.
    """
    for name, value in flags.items():
        if value is not None and value is not False:
            raise ConfigError(f"--{name.replace('_', '-')} would have no effect", hint=remedy)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value
