"""Choose the pair of clocks of every kernel class.

PROFILE states what each class costs at each pair. It is the JSON of `kernels measure`, or a CSV
with the columns kernel,shapes,dtype,memory_mhz,clock_mhz,time_s,energy_j. TRACE states how often
and in which order they run. Prints the classes by their energy with their best pair, and the totals
by level, goal and scope. Then prints what is left at switching latencies from 0 to 40 ms. With -o
all of it goes to a file, for `kernels show`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from json import dumps
from pathlib import Path

from perseus_ds.cli.kernel_level.show import render
from perseus_ds.cli.output import DONE, remark, say
from perseus_ds.cli.quantity import not_negative
from perseus_ds.device import ClockChange
from perseus_ds.kernels import kernel_plan, read_kernel_profile, read_trace, write_kernel_plan
from perseus_ds.kernels.choose import launch_costs, smoothed
from perseus_ds.kernels.segment import ChangeCost, timelines_of
from perseus_ds.kernels.summary import LATENCIES_S
from perseus_ds.plan.timelines import write_timelines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds kernels plan``."""
    parser.add_argument(
        "profile", type=Path, metavar="PROFILE", help="what `kernels measure` wrote, or a CSV"
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="what `kernels trace` wrote")
    parser.add_argument(
        "--slower", type=not_negative, default=10.0, metavar="PCT", help="the tolerance shown (default 10)"
    )
    parser.add_argument(
        "--latency-ms",
        type=not_negative,
        action="append",
        metavar="MS",
        help="a switching latency to plan with; may be given several times (default: 0 to 40)",
    )
    parser.add_argument(
        "--dwell-ms",
        type=not_negative,
        default=0.0,
        metavar="MS",
        help="shortest run of one pair (default 0)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PLAN", help="write what was found to this file")
    parser.add_argument(
        "--timelines",
        type=Path,
        metavar="FILE",
        help="write each instruction's frontier, for changes that take the last --latency-ms (default 40)",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: argparse.Namespace) -> int:
    """Choose, write, print."""
    latencies_s = LATENCIES_S if options.latency_ms is None else [ms / 1e3 for ms in options.latency_ms]
    profile, trace = read_kernel_profile(options.profile), read_trace(options.trace)
    if trace.shortfall:
        remark(f"{options.trace}: {trace.shortfall}")
    plan = kernel_plan(
        profile,
        trace,
        tau=options.slower / 100.0,
        latencies_s=latencies_s,
        dwell_s=options.dwell_ms / 1e3,
    )
    if options.timelines is not None:
        change = ChangeCost(ClockChange.lasting(latencies_s[-1]), options.dwell_ms / 1e3)
        costs = launch_costs(smoothed(profile), trace)
        lines = timelines_of(
            costs, trace, change, spared_w=profile.spared_w, temperature_c=profile.temperature_c
        )
        write_timelines(lines, options.timelines)
    if options.output is not None:
        write_kernel_plan(plan, options.output)
    say(dumps(asdict(plan), indent=1) if options.json else render(plan))
    return DONE
