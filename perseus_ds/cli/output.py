"""Where the commands print: results to standard output, remarks to standard error."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a result."""
    sys.stdout.write(text + "\n")


def say_now(text: str) -> None:
    """Print a result that somebody waits for while we go on."""
    say(text)
    sys.stdout.flush()


def remark(text: str) -> None:
    """Print what is not the result: an assumption, a warning, a refusal."""
    sys.stderr.write(f"perseus-ds: {text}\n")
