"""Print results, tables and remarks; read numbers of the command line; hold the exit codes."""

from __future__ import annotations

import argparse
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TextIO, TypeVar

from perseus_ds.errors import ConfigError

T = TypeVar("T", int, float)
COLUMNS = 80
DONE = 0
REFUSED = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def print_result(text: str) -> None:
    """Print a result; nobody who waits for it waits for the next one."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def log_stderr(text: str) -> None:
    """Print what is not the result: an assumption, a warning, a refusal."""
    sys.stderr.write(f"perseus-ds: {text}\n")


def is_watched(stream: TextIO) -> bool:
    """Return whether a person reads this stream in a terminal."""
    return not stream.closed and stream.isatty()


def bold(text: str) -> str:
    """Emphasise a line in a terminal, unless ``NO_COLOR`` is set."""
    coloured = is_watched(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[1m{text}\x1b[0m" if coloured else text


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Lay rows out in columns; the first ``texts`` columns are text and the others numbers, flush right.

    Nothing wraps: the caller keeps rows short.
    """
    aligned = [
        [f"{cell:{'<' if place < texts else '>'}{max(map(len, column))}}" for cell in column]
        for place, column in enumerate(zip(headings, *rows, strict=True))
    ]
    head, *lines = ("  ".join(row).rstrip() for row in zip(*aligned, strict=True))
    return "\n".join([*([bold(head)] if any(headings) else []), *lines])


def sentences(text: str) -> str:
    """Fold text at 80 columns, each line of it by itself; continued lines are indented."""
    fold = partial(textwrap.fill, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(
        line if len(line) <= COLUMNS or "\x1b" in line else fold(line, COLUMNS) for line in text.splitlines()
    )


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None] | None]:
    """Yield what takes the fraction done, or None when nobody watches."""
    if not is_watched(sys.stderr):
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  # a tenth of a second that only a watcher pays
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda done: progress.update(task, completed=done)


def _number(read: Callable[[str], T], least: T, expected: str) -> Callable[[str], T]:
    def of(text: str) -> T:
        with suppress(ValueError):
            if least <= (value := read(text)) < math.inf:
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")

    return of


positive = _number(float, math.ulp(0.0), "a finite number above 0")
not_negative = _number(float, 0.0, "a finite number from 0 on")
pue = _number(float, 1.0, "a finite number from 1 on")
count = _number(int, 1, "a whole number from 1 on")
index = _number(int, 0, "a whole number from 0 on")


def refuse_idle(remedy: str, **flags: object) -> None:
    """Refuse flags that would do nothing as the others are; one that was not given is None or False.

    Raises:
        ConfigError: naming the first of them.
    """
    for name, value in flags.items():
        if value is not None and value is not False:
            raise ConfigError(f"--{name.replace('_', '-')} would have no effect", hint=remedy)
