"""Write the page and the pictures of a run directory.

One self-contained HTML page (timeline before and after, frontier, saving, clocks, events) and the same
pictures as PNG beside it. Parts that the job has not written are named, with the reason.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perseus_ds.cli.exit_code import DONE
from perseus_ds.cli.output import say
from perseus_ds.report import table, write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds report``."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run_dir of the job's perseus block")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PAGE",
        help="default: RUN_DIR/report.html; the pictures go beside it",
    )


def run(options: argparse.Namespace) -> int:
    """Write all, print the short table and the paths."""
    paths = write_report(options.run_dir, page=options.output)
    say("\n".join([table(options.run_dir), *(f"wrote {path}" for path in paths)]))
    return DONE
