"""Write the page and the pictures of a run directory.

One self-contained HTML page (timeline before and after with its critical path, frontier, saving,
energy by cause, profile, clocks, events), the same pictures as PNG beside it, walk.gif (the optimiser on
its way along the frontier) and trace.json (for Perfetto and chrome://tracing). Parts that the job has
not written are named, with the reason.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from perseus_ds.cli.output import DONE, say
from perseus_ds.cli.quantity import not_negative
from perseus_ds.report import EnergyPrices, table, write_report


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
    parser.add_argument("--price-per-kwh", type=not_negative, metavar="P", help="money that a kWh costs")
    parser.add_argument("--gco2-per-kwh", type=not_negative, metavar="G", help="grams of CO2 that it emits")
    parser.add_argument(
        "--pue", type=float, default=1.0, metavar="X", help="power usage effectiveness of the building (1)"
    )


def run(options: argparse.Namespace) -> int:
    """Write all, print the short table and the paths."""
    prices = EnergyPrices(options.price_per_kwh, options.gco2_per_kwh, options.pue)
    paths = write_report(options.run_dir, page=options.output, prices=prices)
    page, *others = paths
    beside = ", ".join(path.name for path in others)
    say(
        "\n".join(
            [table(options.run_dir), f"wrote {page}", *([f"  and beside it {beside}"] if others else [])]
        )
    )
    return DONE
