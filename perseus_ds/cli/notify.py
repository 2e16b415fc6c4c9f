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
from datetime import datetime, timedelta
from pathlib import Path

from perseus_ds.cli.output import DONE, print_result
from perseus_ds.errors import PerseusError
from perseus_ds.straggler.notices import notify


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
        pipeline=None if options.pipeline is None else _whole(options.pipeline),
        host=options.host,
        slowdown=None if options.slowdown is None else _number(options.slowdown, "slowdown"),
        power_w=None if options.power_cap is None else _number(options.power_cap, "power cap"),
        until_s=None if options.until is None else _until_s(options.until),
        clear=options.clear,
    )
    if options.json:
        written = [str(path) for path in paths if path.exists()]
        removed = [str(path) for path in paths if not path.exists()]
        print_result(json.dumps({"written": written, "removed": removed, "cleared": options.clear}, indent=1))
        return DONE
    for path in paths:
        print_result(f"written: {path}" if path.exists() else f"removed: {path}")
    if options.clear:
        print_result(f"no notice is left in {options.run_dir}")
    return DONE


def _until_s(text: str) -> float:
    """Read a time of day (the next one), or a date with one; in this host's time zone where it names none."""
    now = datetime.now().astimezone()
    try:
        at = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  # a time of day
    except ValueError:
        pass
    else:
        today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
        return (today if today > now else today + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise PerseusError(
            f"until {text!r:.40} is not a time", hint="like 18:00, or 2030-01-31T18:00"
        ) from None


def _whole(text: str) -> int:
    """Read a pipeline's number; a wrong one is refused (exit code 1) as an unknown one is."""
    try:
        return int(text)
    except ValueError:
        raise PerseusError(f"pipeline {text!r:.40} is not a whole number from 0 on") from None


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PerseusError(f"{what} {text!r:.40} is not a number") from None
