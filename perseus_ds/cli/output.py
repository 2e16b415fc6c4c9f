"""What commands print, where, and the exit codes that scripts rely on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perseus_ds.cli.terminal import for_stream
from perseus_ds.errors import ProfileError

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
