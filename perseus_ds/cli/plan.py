"""Turn a profile into a frontier of plans.

PROFILE is a profile.json of a run directory, or a CSV as Zeus writes it
(stage,instruction,frequency,time,energy with forward or backward, MHz, s, J). Prints the fastest time
T_min, the time of least effective energy T*, what some points of the frontier save, and how far the
plans are from a certified lower bound. With -o the whole frontier goes to a plan file, for
`perseus-ds show` and for training.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from perseus_ds.cli.exit_code import DONE
from perseus_ds.cli.frontier_csv import write_frontier
from perseus_ds.cli.output import remark, say
from perseus_ds.cli.plan_summary import render, summarise
from perseus_ds.cli.progress import bar
from perseus_ds.cli.quantity import count, not_negative, positive, waiting_powers
from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan import build, doubt, verify, write_plans
from perseus_ds.plan.switching import Switching
from perseus_ds.profile import Profile, read_profile
from perseus_ds.schedule import TEXTBOOK, textbook

ASSUMED_BLOCKING_POWER_W = 83.64  # A100; Perseus artifact (ml-energy/zeus, branch kronos)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds plan``."""
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="profile.json, or a CSV of Zeus")
    parser.add_argument("--stages", type=count, required=True, metavar="S", help="stages of the model")
    parser.add_argument(
        "--microbatches", type=count, required=True, metavar="M", help="microbatches of an iteration"
    )
    parser.add_argument(
        "--schedule",
        choices=TEXTBOOK,
        default="1f1b",
        metavar="NAME",
        help=f"{', '.join(TEXTBOOK)}; default: %(default)s",
    )
    parser.add_argument(
        "--chunks",
        type=count,
        metavar="V",
        help="stages that one GPU holds; default: 1, with zbv and dualpipe-v 2",
    )
    parser.add_argument(
        "--group", type=count, metavar="G", help="microbatches that pass a chunk together; default: the ranks"
    )
    parser.add_argument(
        "--blocking-power-w",
        type=positive,
        metavar="W",
        help="power of one GPU that waits; default: the profile's, else 83.64 (A100)",
    )
    parser.add_argument(
        "--wait-power-w",
        type=waiting_powers,
        metavar="MHZ:W,...",
        help="power of a waiting GPU by clock; default: the profile's",
    )
    parser.add_argument(
        "--waits",
        choices=["auto", "never"],
        default="never",
        help="lower the clock in long waits; default: never",
    )
    parser.add_argument(
        "--split",
        choices=["auto", "never"],
        default="auto",
        help="change clocks inside computations; default: auto",
    )
    parser.add_argument(
        "--switch-latency-ms",
        type=not_negative,
        metavar="MS",
        help="plan for changes of clock that take so long; default: as the profile was calibrated",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PLAN", help="write all plans to this file")
    parser.add_argument(
        "--frontier-csv", type=Path, metavar="F", help="write time, energy, bound of every plan"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--verify", action="store_true", help="check every plan and its bound again")


def run(options: argparse.Namespace) -> int:
    """Plan, write what was asked for, print the summary."""
    profile = read_profile(options.profile)
    if options.wait_power_w is not None:
        profile = replace(profile, blocking_w=options.wait_power_w)
    if options.waits == "auto" and not profile.blocking_w:
        raise PlanError(
            f"{options.profile} does not say what waiting takes by clock",
            hint="give --wait-power-w MHZ:W,...",
        )
    if profile.stages != options.stages:
        raise PlanError(
            f"{options.profile} has {profile.stages} stages, --stages is {options.stages}",
            hint=f"give --stages {profile.stages}",
        )
    schedule = textbook(
        options.schedule,
        stages=options.stages,
        microbatches=options.microbatches,
        chunks=options.chunks,
        group=options.group,
    )
    power_w = _blocking_power_w(profile, options.blocking_power_w)
    with bar("planning") as progress:
        plans = build(
            profile,
            schedule,
            blocking_power_w=power_w,
            switching=_switching(options, profile),
            verify=options.verify,
            fingerprint=profile.fingerprint,
            progress=progress,
        )
    if doubtful := doubt(plans):
        remark(doubtful)
    checked = verify(plans) if options.verify else None
    if options.output is not None:
        write_plans(plans, options.output)
    if options.frontier_csv is not None:
        write_frontier(plans, options.frontier_csv)
    summary = summarise(plans, checked=checked)
    say(json.dumps(summary.as_json(), indent=1) if options.json else render(summary))
    return DONE


def _switching(options: argparse.Namespace, profile: Profile) -> Switching:
    """What the flags say, else the profile's calibration; a latency is a call and, as long, its settling."""
    switching = Switching.of(profile)
    if options.switch_latency_ms is not None:
        half_s = options.switch_latency_ms / 2e3
        shortest_s = min(point.time_s for points in profile.points.values() for point in points)
        if 2.0 * half_s > shortest_s:
            remark(
                f"a change of {options.switch_latency_ms:g} ms is longer than the shortest computation"
                f" ({1e3 * shortest_s:.3g} ms): clocks are asked for in the one before"
            )
        switching = Switching(ClockChange(half_s, half_s, half_s))
    return replace(switching, split=options.split, waits=options.waits)


def _blocking_power_w(profile: Profile, given_w: float | None) -> float:
    if given_w is not None:
        return given_w
    if profile.blocking_power_w is not None:
        return profile.blocking_power_w
    remark(
        f"assuming a blocking power of {ASSUMED_BLOCKING_POWER_W} W (A100, Perseus artifact);"
        " give --blocking-power-w"
    )
    return ASSUMED_BLOCKING_POWER_W
