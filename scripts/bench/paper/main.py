"""The tables and figures of the Perseus paper's emulation, from the profile given, everybody priced alike.

Run: ``python scripts/bench/paper/main.py PROFILE [--microbatches 12 24 48 96] > paper.json``
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rows import BOUND, Row, rows_of

from perseus_ds.profile import read_profile

PUBLISHED = {
    "table_6": {12: 15.20, 24: 14.19, 48: 13.62, 96: 13.32},
    "perseus_beside_1.2": {96: 27.0},
    "envpipe_beside_1.2": {96: 12.0},
}
"""Savings in percent by microbatches, GPT-3 175B on A100 SXM, 8 stages: at full speed (arXiv 2312.06902,
table 6) and of a pipeline beside a straggler of 1.2 (the artifact's evaluation of figure 7)."""


def main() -> int:
    """Plan every number of microbatches; print the tables to standard error, the figures as JSON."""
    arguments = _arguments()
    profile = read_profile(arguments.profile)
    rows: list[Row] = []
    for microbatches in arguments.microbatches:
        began = time.perf_counter()
        rows += rows_of(profile, microbatches, blocking_power_w=arguments.blocking_power_w)
        took_s = time.perf_counter() - began
        print(f"{profile.stages} x {microbatches}: {took_s:.1f} s", file=sys.stderr)
    print(json.dumps({"published": PUBLISHED, "rows": [asdict(row) for row in rows]}, indent=1))
    print(_table(rows, arguments.microbatches), file=sys.stderr)
    return 0


def _table(rows: list[Row], microbatches: list[int]) -> str:
    """Lay out savings at full speed, then beside a straggler of 1.2, a column per number of microbatches."""
    lines = []
    for slowdown in ("1", "1.2"):
        lines.append(f"\nsaving in %, straggler {slowdown}: " + "".join(f"{m:>16}" for m in microbatches))
        for method in dict.fromkeys(row.method for row in rows):
            cells = [_cell(row, slowdown) for row in rows if row.method == method]
            lines.append(f"{method:<31}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def _cell(row: Row, slowdown: str) -> str:
    saving = row.saving_pct[slowdown]
    if saving is None:
        return "-"
    longer = f" {row.longer_pct:+.2f}%" if slowdown == "1" and row.method != BOUND else ""
    return f"{saving:.2f}{longer}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path, help="CSV of Zeus, or a profile.json")
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 24, 48, 96])
    parser.add_argument("--blocking-power-w", type=float, default=83.64, help="A100, as the artifact has it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
