"""The guard's log, over the standard library's `logging`: logger ``perseus_ds.guardd``.

A job's own guard has errors alone printed on standard error, which may be gone with the job. The node's
service takes all events (`ServiceLog`).
"""

from __future__ import annotations

import contextlib
import logging
import sys

from perseus_ds.errors import DeviceError
from perseus_ds.guard.protocol import Value, printable

LOGGER = logging.getLogger("perseus_ds.guardd")
_MAX_CHARACTERS = 500


def log_event(name: str, message: str, level: int = logging.INFO, **fields: Value) -> None:
    """Log an event, without ever waiting; fields of None are left out."""
    extra = {"event": name, "fields": fields}
    LOGGER.log(level, "%s", printable(message)[:_MAX_CHARACTERS], extra=extra)


def log_error(message: str) -> None:
    """Print an error of the trainer's side of a guard."""
    print_line(f"perseus_ds guard: {message}")


def not_restored(error: DeviceError) -> str:
    """State that a clock may stay locked, and what tries again."""
    return (
        f"clock not put back, though the driver was asked for 30 s: {error}; "
        "perseus-ds clocks reset, or the next start, tries again"
    )


def print_line(line: str) -> None:
    """Print a line on a standard error that may be gone."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error may be gone
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class _Errors(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log_error(record.getMessage())


LOGGER.propagate = False
LOGGER.setLevel(logging.INFO)
ERRORS = _Errors(logging.ERROR)
LOGGER.addHandler(ERRORS)
