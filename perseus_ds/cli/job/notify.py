"""Tell a running job about a straggler that is known in advance.

The others of its pipelines (data-parallel replicas) then run as slowly as that one, at the plan of least
energy for it. The job takes it within two iterations, and believes the run directory's owner and root.
A slowdown of 1 ends it.

A scheduler may as well write the file itself, at one stroke (write another file, rename it):
RUN_DIR/notices/pipeline_P.json with {"slowdown": X}; removing it ends it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.errors import PerseusError
from perseus_ds.straggler.announcement.announcing import Announced, notify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds notify``."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run_dir of the running job")
    parser.add_argument(
        "--pipeline", required=True, metavar="P", help="which data-parallel replica, counted from 0"
    )
    parser.add_argument(
        "--slowdown", required=True, metavar="X", help="1.2: its iterations take 20 %% longer; 1 ends it"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever reads the file")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(options: argparse.Namespace) -> int:
    """Leave or withdraw the notice, and say so."""
    pipeline, slowdown = _whole(options.pipeline), _number(options.slowdown)
    done = notify(options.run_dir, pipeline=pipeline, slowdown=slowdown, reason=options.reason)
    if done.pipelines is None:
        remark("the journal does not say how many pipelines the job has: the number was not checked")
    say(json.dumps(_as_json(done)) if options.json else _in_words(done))
    return DONE


def _in_words(done: Announced) -> str:
    if done.slowdown > 1.0:
        return f"pipeline {done.pipeline} is announced to be {done.slowdown:g} times slower: {done.path}"
    return f"pipeline {done.pipeline} is not announced to be slow any more"


def _as_json(done: Announced) -> dict[str, object]:
    return {
        "pipeline": done.pipeline,
        "slowdown": done.slowdown,
        "notice": str(done.path) if done.slowdown > 1.0 else None,
        "pipelines": done.pipelines,
    }


def _whole(text: str) -> int:
    """Read a pipeline's number; a wrong one is refused (exit code 1) as an unknown one is."""
    try:
        return int(text)
    except ValueError:
        raise PerseusError(f"pipeline {text!r:.40} is not a whole number from 0 on") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PerseusError(f"slowdown {text!r:.40} is not a number") from None
