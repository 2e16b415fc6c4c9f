"""Inform a running job about a straggler that is known in advance, or give it a power cap.

A straggler: the others of its pipelines (data-parallel replicas) then run as slowly as that one, at the
plan of least energy for it. A slowdown of 1 ends it.

A power cap: the job runs the fastest plan whose mean power, summed over its pipelines, stays below it. Where
both are set the slower plan runs. The job follows within two iterations.

A scheduler can also write the files directly: write a temporary file, then rename it. The file is
RUN_DIR/notices/pipeline_P.json with {"slowdown": X}, or RUN_DIR/notices/power_cap.json with
{"power_w": W}; both may have "until". Delete the file to end the notice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from perseus_ds.cli.output import DONE, print_result
from perseus_ds.errors import PerseusError
from perseus_ds.straggler.notices import notify

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds notify``."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run_dir of the running job")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--slowdown", metavar="X", help="1.2: its iterations take 20 %% longer; 1 ends it")
    what.add_argument("--power-cap", metavar="W", help="mean power that the whole job may take, in watts")
    what.add_argument("--clear", action="store_true", help="end all notices")
    slow = parser.add_mutually_exclusive_group()
    slow.add_argument("--pipeline", metavar="P", help="which data-parallel replica is slow, counted from 0")
    slow.add_argument("--host", metavar="HOST", help="every pipeline with a GPU on this host is slow")
    parser.add_argument("--json", action="store_true", help="print the files of the notices as JSON")
    parser.add_argument("--until", metavar="TIME", help="18:00 or 2030-01-31T18:00: when the notice ends")


def run(options: argparse.Namespace) -> int:
    """Write or remove the notice, and report it."""
    paths = notify(
        options.run_dir,
        pipeline=_number(int, options.pipeline, "pipeline"),
        host=options.host,
        slowdown=_number(float, options.slowdown, "slowdown"),
        power_w=_number(float, options.power_cap, "power cap"),
        until_s=None if options.until is None else _until_s(options.until),
        clear=options.clear,
    )
    found: dict[str, list[str]] = {"written": [], "removed": []}
    for path in paths:
        found["written" if path.exists() else "removed"].append(str(path))
    if options.json:
        print_result(json.dumps({**found, "cleared": options.clear}, indent=1))
        return DONE
    for what, files in found.items():
        for file in files:
            print_result(f"{what}: {file}")
    if options.clear:
        print_result(f"no notice is left in {options.run_dir}")
    return DONE


def _until_s(text: str) -> float:
    """Read a time of day (the next one), or a date with one; in this host's time zone where it names none."""
    now = datetime.now().astimezone()
    with suppress(ValueError):
        at = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  # a time of day
        today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
        return (today if today > now else today + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise PerseusError(
            f"until {text!r:.40} is not a time", hint="like 18:00, or 2030-01-31T18:00"
        ) from None


def _number(read: Callable[[str], T], text: str | None, what: str) -> T | None:
    """Read a number; a wrong one is refused (exit code 1) as an unknown pipeline is."""
    try:
        return None if text is None else read(text)
    except ValueError:
        raise PerseusError(f"{what} {text!r:.40} is not a number") from None
