"""Turn a profile into a frontier of plans.

PROFILE is a profile.json of a run directory, or a CSV as Zeus writes it. Its columns are
stage,instruction,frequency,time,energy with forward or backward, MHz, s, J. Beside the
plan_request.json that the job left in the run directory it is planned as the job plans. `mode: run`
takes the file that -o writes there as plan.json. A line names what flags change of that. Prints the
fastest time T_min, the time of least effective energy T*, and what some points of the frontier
save. Also prints how far the plans are from a certified lower bound. With -o the whole frontier
goes to a plan file, for `perseus-ds show` and for training.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import replace
from pathlib import Path

from perseus_ds.cli.output import DONE, bar, names_profile, remark, say
from perseus_ds.cli.planning.plan_request import request_of, switching_of
from perseus_ds.cli.planning.plan_summary import render, summarise
from perseus_ds.cli.quantity import (
    count,
    not_negative,
    not_negative_or_auto,
    one_of,
    positive,
    refuse_idle,
    waiting_powers,
    words_of,
)
from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanSet, build, doubt, too_little_reserve, verify, write_plans
from perseus_ds.plan.between import with_plan_within
from perseus_ds.plan.budget import GPUS_PER_NODE
from perseus_ds.plan.playing.expected import with_power_ratio
from perseus_ds.plan.profile_error import EntryError, FewClocks, few_clocks, profile_error
from perseus_ds.plan.solving.reserve import UNKNOWN_PCT
from perseus_ds.plan.solving.switching import Split, Wait
from perseus_ds.plan.timelines import read_timelines
from perseus_ds.profile import Profile, read_profile, smoothed
from perseus_ds.schedule import TEXTBOOK, Schedule, dag_of

_LONG_S = 10.0
FRONTIER_COLUMNS = ("iteration_time_s", "energy_j", "effective_energy_j", "lower_bound_j")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds plan``."""
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="profile.json, or a CSV of Zeus")
    parser.add_argument("--stages", type=count, metavar="S", help="stages of the model; default: the job's")
    parser.add_argument(
        "--microbatches", type=count, metavar="M", help="microbatches of an iteration; default: the job's"
    )
    parser.add_argument(
        "--schedule",
        choices=TEXTBOOK,
        metavar="NAME",
        help=f"{', '.join(TEXTBOOK)}; default: the job's, else 1f1b",
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
    _add_clocks(parser)
    _add_iteration(parser)
    _add_budget(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="PLAN", help="write all plans to this file")
    parser.add_argument(
        "--frontier-csv", type=Path, metavar="F", help="write time, energy, bound of every plan"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--verify", action="store_true", help="check every plan and its bound again")


def _add_clocks(parser: argparse.ArgumentParser) -> None:
    """What clocks may do."""
    parser.add_argument(
        "--waits",
        type=one_of(Wait),
        metavar=words_of(Wait),
        help="lower the clock in long waits; default: the job's, else never",
    )
    parser.add_argument(
        "--split",
        type=one_of(Split),
        metavar=words_of(Split),
        help="change clocks inside computations; default: the job's, else automatic",
    )
    parser.add_argument(
        "--switch-latency-ms",
        type=not_negative,
        metavar="MS",
        help="plan for changes of clock that take so long; default: as the profile was calibrated",
    )


def _add_iteration(parser: argparse.ArgumentParser) -> None:
    """How iterations turn out: durations that vary, other ways to run them, and their power."""
    parser.add_argument(
        "--reserve-pct",
        type=not_negative_or_auto,
        metavar="PCT|automatic",
        help="plan stretched computations as if they took so much longer (automatic: as their durations"
        " varied in the profile); default: the job's, else 0",
    )
    parser.add_argument(
        "--loads",
        metavar="FILE|KIND:...",
        help="plan for microbatches of these lengths (as `simulate --loads`), with a reserve that they need",
    )
    parser.add_argument(
        "--timelines",
        type=Path,
        metavar="FILE",
        help="further ways to run each instruction: of `kernels plan --timelines`, or made elsewhere",
    )


def _add_budget(parser: argparse.ArgumentParser) -> None:
    """How often clocks may change."""
    parser.add_argument(
        "--changes-per-s",
        type=not_negative,
        metavar="N",
        help="change one GPU's clock at most so often; default: no limit",
    )
    parser.add_argument(
        "--node-changes-per-s",
        type=not_negative,
        metavar="N",
        help="change the clocks of a node's GPUs together at most so often; default: no limit",
    )
    parser.add_argument(
        "--gpus-per-node",
        type=count,
        metavar="G",
        help=f"GPUs of the pipeline that share a node; default: {GPUS_PER_NODE}",
    )


def run(options: argparse.Namespace) -> int:
    """Plan, write what was asked for, print the summary."""
    measured = read_profile(options.profile)
    profile = _profile(options, measured)
    request = request_of(options, profile)
    if request.budget.per_node_per_s is None:
        refuse_idle("give --node-changes-per-s", gpus_per_node=options.gpus_per_node)
    if options.loads is not None:
        profile = _at_loads(profile, options.loads, request.schedule)
    if request.reserve_pct == "auto" and profile.variation() is None:
        remark(f"{options.profile} does not record how durations vary: {UNKNOWN_PCT:g} % is kept in reserve")
    with names_profile(options.profile), bar("planning") as progress:
        plans = build(
            profile,
            request.schedule,
            blocking_power_w=request.blocking_power_w,
            reserve_pct=request.reserve_pct,
            switching=switching_of(request, options, profile),
            timelines=() if request.timelines is None else read_timelines(Path(request.timelines)),
            verify=options.verify,
            fingerprint=request.fingerprint,
            progress=progress,
        )
    plans = with_plan_within(plans, request.objective)
    error, few = profile_error(profile, plans), few_clocks(measured)
    _remark_doubts(plans, error, few)
    checked = verify(plans) if options.verify else None
    if options.output is not None:
        write_plans(with_power_ratio(plans, profile, plans.change), options.output)
    if options.frontier_csv is not None:
        _write_frontier(plans, options.frontier_csv)
    summary = summarise(plans, checked=checked, error=error, few=few)
    say(json.dumps(summary.as_json(), indent=1) if options.json else render(summary))
    return DONE


def _remark_doubts(plans: PlanSet, error: EntryError | None, few: FewClocks | None) -> None:
    """Remark every doubt about the plans."""
    errors = str(error) if error is not None and error.matters else None
    scatter = str(few) if few is not None and few.scatter_pct is not None else None
    for line in filter(None, (doubt(plans), too_little_reserve(plans), scatter, errors)):
        remark(line)


def _profile(options: argparse.Namespace, measured: Profile) -> Profile:
    """Draw the profile to its curves, with the power of waiting that was given."""
    profile = smoothed(measured, scatter=True)
    longest_s = max((profile.of(*key)[0].time_s for key in profile.points), default=0.0)
    if longest_s > _LONG_S:
        remark(f"{options.profile}: one computation takes {longest_s:g} s; times are read as seconds, not ms")
    if options.wait_power_w is not None:
        profile = replace(profile, blocking_w=options.wait_power_w)
    if options.waits == "auto" and not profile.blocking_w:
        raise PlanError(
            f"{options.profile} does not record what waiting takes by clock",
            hint="give --wait-power-w MHZ:W,...",
        )
    return profile


def _at_loads(profile: Profile, told: str, schedule: Schedule) -> Profile:
    """Have durations vary as these loads make them, and by a percent at one load where that is not known."""
    from perseus_ds.simulation.emulator.lengths import parse_loads  # noqa: PLC0415  # the whole emulator

    loads = parse_loads(told)
    loads.check(microbatches=schedule.microbatches)
    if profile.variation() is None:
        remark(f"the profile does not record how durations vary: {UNKNOWN_PCT:g} % is assumed at one load")
        points = {
            key: tuple(replace(point, time_sd_s=UNKNOWN_PCT / 100.0 * point.time_s) for point in own)
            for key, own in profile.points.items()
        }
        profile = replace(profile, points=points)
    return replace(profile, size_variation=loads.variation(profile, dag_of(schedule).nodes))


def _write_frontier(plans: PlanSet, path: Path) -> None:
    """Write all plans, iteration time ascending.

    ``energy_j`` and ``lower_bound_j`` are totals of one pipeline over the row's own iteration time.
    """
    columns = (getattr(plans, name).tolist() for name in FRONTIER_COLUMNS)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(FRONTIER_COLUMNS)
        rows.writerows(zip(*columns, strict=True))
