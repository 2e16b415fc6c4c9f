"""What changes of clock cost: latency x workload x kind of plan, each run by the emulator.

Run: ``python scripts/bench/switching/main.py PROFILE [--microbatches 12 48] [--latency-ms 0 10 40] [-o PNG]``
(``--gpu a40`` instead of PROFILE: eight stages of a simulated GPU)
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

from picture import drawn
from players import HIGH_W, LOW_MHZ, LOW_W, Row, rows_of
from profiles import eight_stages

from perseus_ds.device import ClockChange
from perseus_ds.profile import read_profile
from perseus_ds.schedule import textbook

_COLUMNS = 4  # as played


def main() -> int:
    """Print rows as JSON, and as a table to standard error."""
    arguments = _arguments()
    if arguments.gpu is None:
        profile = read_profile(arguments.profile)
        profile = replace(profile, blocking_w={max(profile.clocks_mhz): HIGH_W, LOW_MHZ: LOW_W})
    else:
        profile = eight_stages(arguments.gpu)
    rows: list[Row] = []
    for microbatches in arguments.microbatches:
        schedule = textbook("1f1b", stages=profile.stages, microbatches=microbatches)
        for latency_ms in arguments.latency_ms:
            half_s = latency_ms / 2e3
            for row in rows_of(profile, schedule, ClockChange(half_s, half_s, half_s)):
                print(_line(row), file=sys.stderr)
                rows.append(row)
    print(json.dumps([asdict(row) for row in rows], indent=1))
    if arguments.output is not None:
        drawn(rows, arguments.output)
    return 0


def _line(row: Row) -> str:
    played = "".join(f" | {saving:.2f}, {slower:+.2f}" for saving, slower in row.played)
    played += " |" * (_COLUMNS - len(row.played))
    kept = ", ".join(f"{pct:g}" for pct in row.reserves_pct)
    return (
        f"| {row.microbatches} | {row.latency_ms:g} ms | {row.kind} | {row.changes_per_s:.1f}"
        f" | {row.planned_saving_pct:.2f}{played} | {kept} | {row.plan_cpu_s:.1f} |"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path, nargs="?")
    parser.add_argument("--gpu", help="a simulated GPU in the place of a profile")
    parser.add_argument("--microbatches", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--latency-ms", type=float, nargs="+", default=[0.0, 10.0, 40.0])
    parser.add_argument("-o", "--output", type=Path, help="draw savings over latencies")
    arguments = parser.parse_args()
    if (arguments.profile is None) == (arguments.gpu is None):
        parser.error("give a PROFILE or --gpu")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
