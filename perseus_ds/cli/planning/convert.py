"""Turn a profile of our own (.json) into the CSV of Zeus (.csv), or back.

The CSV is stage,instruction,frequency,time,energy with forward or backward, MHz, s, J, as Zeus and the
Perseus artifact use it. It holds the points alone: spread, fixed durations, blocking power and the
fingerprint of the job stay in the JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from perseus_ds.cli.output import DONE, say
from perseus_ds.cli.quantity import positive
from perseus_ds.cli.terminal import counted
from perseus_ds.errors import ProfileError
from perseus_ds.profile import read_profile, write_csv, write_profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds convert``."""
    parser.add_argument("source", type=Path, metavar="FROM", help="profile to read: .json or .csv")
    parser.add_argument("target", type=Path, metavar="TO", help="profile to write: .json or .csv")
    parser.add_argument(
        "--blocking-power-w", type=positive, metavar="W", help="power of a waiting GPU, kept in the JSON"
    )


def run(options: argparse.Namespace) -> int:
    """Read one form, write the other."""
    profile = read_profile(options.source)
    if options.blocking_power_w is not None:
        profile = dataclasses.replace(profile, blocking_power_w=options.blocking_power_w)
    match options.target.suffix.lower():
        case ".csv":
            write_csv(profile, options.target)
        case ".json":
            write_profile(profile, options.target)
        case other:
            raise ProfileError(f"{options.target}: no profile is written as {other!r}", hint=".json or .csv")
    points = sum(map(len, profile.points.values()))
    say(
        f"{options.target}: {counted(profile.stages, 'stage')},"
        f" {counted(len(profile.clocks_mhz), 'clock')}, {counted(points, 'point')}"
    )
    return DONE
