"""Turn a profile into a frontier of plans.

PROFILE is a profile.json of a run directory, or a CSV as Zeus writes it. Its columns are
stage,instruction,frequency,time,energy with forward or backward, MHz, s, J. Beside the
plan_request.json that the job left in the run directory it is planned as the job plans. `mode: run`
takes the file that -o writes there as plan.json. A line names what options change of that. Prints
the fastest time T_min, the time of least effective energy T*, and what some points of the frontier
save, with a certified bound on how much better they could be.

--set KEY=VALUE takes the keys of the block's section objective: reserve_pct, split, waits,
changes_per_s, node_changes_per_s, timelines and the policies. Further keys: chunks (stages on one
GPU), group (microbatches that pass a chunk together), gpus_per_node, and switch_latency_ms (plan
for changes of clock that take so long).
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from perseus_ds.cli.output import (
    DONE,
    bar,
    count,
    grid,
    log_stderr,
    positive,
    print_result,
    sentences,
)
from perseus_ds.config import Objective
from perseus_ds.config.load import check_objective, parse_keys
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError, PlanError
from perseus_ds.plan import FrequencyPlan, PlanSet, build, select, write_plans
from perseus_ds.plan.expected import EntryError, FewClocks, few_clocks, profile_error, with_power_ratio
from perseus_ds.plan.file import PlanRequest, read_request
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget, read_timelines
from perseus_ds.plan.reserve import UNKNOWN_PCT, doubt, reserve_in_words, too_little_reserve
from perseus_ds.plan.select import costs_of, count_of, select_for, unslowed_s, with_plan_within
from perseus_ds.profile import Profile, read_profile, smooth
from perseus_ds.profile.files import names_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.schedule import TEXTBOOK, Schedule, textbook

ASSUMED_BLOCKING_POWER_W = 83.64  # A100; Perseus artifact (ml-energy/zeus, branch kronos)
FRONTIER_COLUMNS = ("iteration_time_s", "energy_j", "effective_energy_j", "lower_bound_j")
SLOWDOWNS_PCT = (1.0, 2.0, 5.0, 10.0, 20.0)
_LONG_S = 10.0
_POLICY = ("policy", "max_slowdown_pct", "deadline_s", "power_cap_w")
_REMARKED = ("blocking_power_w", "reserve_pct", "split", "waits", "budget", "timelines")
Count = Annotated[int, Field(ge=1)]
_LATENCY = "switch_latency_ms"
Figures = dict[str, Any]


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
        "--blocking-power-w",
        type=positive,
        metavar="W",
        help="power of one GPU that waits; default: the profile's, else 83.64 (A100)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the block; see above"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PLAN", help="write all plans to this file")
    parser.add_argument(
        "--frontier-csv", type=Path, metavar="F", help="write time, energy, bound of every plan"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(options: argparse.Namespace) -> int:
    """Plan, write what was asked for, print the summary."""
    measured = read_profile(options.profile)
    profile, given = smooth(measured, scatter=True), _given(options.set)
    longest_s = max((profile.of(*key)[0].time_s for key in profile.points), default=0.0)
    if longest_s > _LONG_S:
        log_stderr(f"{options.profile}: a computation takes {longest_s:g} s; times are seconds, not ms")
    request = request_of(options, given, profile)
    if request.waits == "automatic" and not profile.blocking_w:
        raise PlanError(
            f"{options.profile} does not record the power of a waiting GPU by clock, which waits=automatic"
            " needs",
            hint="a profile.json of a job has it, under blocking_w",
        )
    if request.reserve_pct == "automatic" and profile.variation() is None:
        log_stderr(f"{options.profile} does not record how durations vary: {UNKNOWN_PCT:g} % in reserve")
    with names_profile(options.profile), bar("planning") as progress:
        plans = build(
            profile,
            request.schedule,
            blocking_power_w=request.blocking_power_w,
            reserve_pct=request.reserve_pct,
            switching=_switching_of(request, given, profile),
            timelines=() if request.timelines is None else read_timelines(Path(request.timelines)),
            fingerprint=request.fingerprint,
            progress=progress,
        )
    plans = with_plan_within(plans, request.objective)
    error, few = profile_error(profile, plans), few_clocks(measured)
    scatter = None if few is None or few.scatter_pct is None else few
    errors = None if error is None or not error.matters else error
    for line in filter(None, (doubt(plans), too_little_reserve(plans), scatter, errors)):
        log_stderr(str(line))
    if options.output is not None:
        write_plans(with_power_ratio(plans, profile, plans.change), options.output)
    if options.frontier_csv is not None:
        with options.frontier_csv.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(FRONTIER_COLUMNS)
            rows.writerows(zip(*(getattr(plans, name).tolist() for name in FRONTIER_COLUMNS), strict=True))
    figures = summarise(plans, error, few)
    print_result(json.dumps(figures, indent=1) if options.json else render(plans, figures))
    return DONE


@dataclass(frozen=True, slots=True)
class Settings(Objective):
    """Keys that ``--set`` takes: those of the section ``objective``, and some of a plan alone."""

    chunks: Count | None = None
    group: Count | None = None
    gpus_per_node: Count | None = None
    switch_latency_ms: Annotated[float, Field(ge=0.0, le=1e4)] | None = None


def _given(words: Sequence[str]) -> dict[str, Any]:
    """Read ``--set KEY=VALUE``: a number, true, false or null as JSON has it, else text."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.removeprefix("objective.").partition("=")
        if not equals or key in found:
            raise ConfigError(f"--set {word}", hint="expected KEY=VALUE, each key once")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    checked = parse_keys(found, Settings, section="objective.", prefix="--set ")
    check_objective(checked, prefix="--set ")
    if "gpus_per_node" in found and "node_changes_per_s" not in found:
        raise ConfigError("--set gpus_per_node would have no effect", hint="set node_changes_per_s as well")
    return {key: getattr(checked, key) for key in found}


def request_of(options: argparse.Namespace, given: dict[str, Any], profile: Profile) -> PlanRequest:
    """Take the request of the job that measured the profile, with what options change of it.

    Raises:
        PlanError: no request there and no sizes given, or sizes that do not fit the profile.
    """
    job = _job_request(options.profile, profile)
    if job is None and (options.stages is None or options.microbatches is None):
        raise PlanError(
            f"no job's plan_request.json beside {options.profile}", hint="give --stages and --microbatches"
        )
    schedule = _schedule(options, given, profile, None if job is None else job.schedule)
    blocking_power_w = _blocking_power_w(options, profile, job)
    base = job or PlanRequest(schedule, profile.fingerprint, blocking_power_w, 0.0)
    policy = {key: given[key] for key in _POLICY if key in given}
    asked = replace(
        base,
        schedule=schedule,
        blocking_power_w=blocking_power_w,
        budget=ChangeBudget(
            given.get("changes_per_s", base.budget.per_gpu_per_s),
            given.get("node_changes_per_s", base.budget.per_node_per_s),
            given.get("gpus_per_node", base.budget.gpus_per_node),
            dated=base.budget.dated and "changes_per_s" not in given,
        ),
        objective=replace(base.objective or Objective(), **policy) if policy else base.objective,
        **{key: given[key] for key in ("reserve_pct", "split", "waits", "timelines") if key in given},
    )
    if job is None:
        return asked
    fingerprint = profile.fingerprint
    if schedule is job.schedule:
        of_timelines = f", timelines {asked.timelines}"
        if asked.timelines == job.timelines:  # as the job's fingerprint names them
            of_timelines = "".join(job.fingerprint.get("clock_changes", "").partition(", timelines ")[1:])
        changes = f"split {asked.split}, waits {asked.waits}{asked.budget}".replace("automatic", "auto")
        fingerprint = {
            **job.fingerprint,
            "reserve_pct": reserve_in_words(asked.reserve_pct),
            "clock_changes": changes + of_timelines,
        }
    asked = replace(asked, fingerprint=fingerprint)
    _remark_changes(job, asked, given)
    return asked


def _job_request(file: Path, profile: Profile) -> PlanRequest | None:
    """Read the request beside a profile; None without one, or where another job wrote it."""
    files = RunDirectory(file.parent)
    if file.name != files.profile.name or not files.request.exists():
        return None
    request = read_request(files.request)
    other = [key for key, value in profile.fingerprint.items() if request.fingerprint.get(key) != value]
    if other:
        names = ", ".join(other)
        log_stderr(f"{files.request} is not of the job that measured {file.name} ({names}): not used")
        return None
    return request


def _schedule(
    options: argparse.Namespace, given: dict[str, Any], profile: Profile, own: Schedule | None
) -> Schedule:
    """Return the job's schedule where the options describe it, else a textbook's of the sizes asked for."""
    theirs = ("1f1b", profile.stages, 1) if own is None else (own.name, own.stages, own.microbatches)
    name = options.schedule or theirs[0]
    stages, microbatches = options.stages or theirs[1], options.microbatches or theirs[2]
    sizes = {key: given[key] for key in ("chunks", "group") if key in given}
    if own is not None and not sizes and (name, stages, microbatches) == theirs:
        return own
    if name not in TEXTBOOK:
        raise PlanError(f"the job's schedule {name} has one size", hint=f"--schedule {' or '.join(TEXTBOOK)}")
    if profile.stages != stages:
        raise PlanError(
            f"{options.profile} has {count_of(profile.stages, 'stage')}, --stages is {stages}",
            hint=f"give --stages {profile.stages}",
        )
    return textbook(name, stages=stages, microbatches=microbatches, **sizes)


def _switching_of(request: PlanRequest, given: dict[str, Any], profile: Profile) -> Switching:
    """Take the profile's calibration, or a latency: a call and, as long, its settling."""
    switching = Switching.of(profile)
    if _LATENCY in given:
        half_s = given[_LATENCY] / 2e3
        shortest_s = min(point.time_s for points in profile.points.values() for point in points)
        if 2.0 * half_s > shortest_s:
            log_stderr(
                f"a change of {given[_LATENCY]:g} ms is longer than the shortest computation"
                f" ({1e3 * shortest_s:.3g} ms): clocks are asked for in the one before"
            )
        switching = Switching(ClockChange(half_s, half_s, half_s))
    return replace(switching, split=request.split, waits=request.waits, budget=request.budget)


def _remark_changes(job: PlanRequest, asked: PlanRequest, given: dict[str, Any]) -> None:
    """Report in one line whose plan it is, and what is not as the job has it."""
    theirs, ours = (
        {
            "schedule": f"{one.schedule.name} {one.schedule.stages} x {one.schedule.microbatches} of"
            f" {sum(map(len, one.schedule.orders))} instructions"
        }
        | {key: _shown(getattr(one, key)) for key in _REMARKED}
        for one in (job, asked)
    )
    differs = [f"{key} {ours[key]} (the job: {theirs[key]})" for key in ours if ours[key] != theirs[key]]
    if _LATENCY in given:
        differs.append(f"a change of clock takes {given[_LATENCY]:g} ms (the job: as calibrated)")
    if differs:
        log_stderr(f"not as the job plans: {'; '.join(differs)}")
    else:
        log_stderr(f"as the job plans: {theirs['schedule']}, reserve_pct {theirs['reserve_pct']}")


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value or "none").removeprefix(", ")


def _blocking_power_w(options: argparse.Namespace, profile: Profile, job: PlanRequest | None) -> float:
    """Return what was typed, else the job's or the profile's, else an A100's."""
    known_w = profile.blocking_power_w if job is None else job.blocking_power_w
    if options.blocking_power_w is None and known_w is not None:
        return known_w
    blocking_power_w: float = options.blocking_power_w or ASSUMED_BLOCKING_POWER_W
    if options.blocking_power_w is None:
        log_stderr(
            f"assuming a blocking power (one GPU that waits) of {ASSUMED_BLOCKING_POWER_W} W (A100, Perseus"
            " artifact); give --blocking-power-w"
        )
    for stage, kind in profile.points:
        fastest = profile.of(stage, kind)[0]
        if (power_w := fastest.energy_j / fastest.time_s) < blocking_power_w:
            raise PlanError(
                f"{options.profile}: stage {stage} {kind.words} at {fastest.clock_mhz} MHz takes"
                f" {power_w:.4g} W, less than the {blocking_power_w:g} W of a GPU that waits",
                hint="give --blocking-power-w for this GPU; times are seconds, energies joules of one GPU",
            )
    return blocking_power_w


def summarise(plans: PlanSet, error: EntryError | None, few: FewClocks | None) -> Figures:
    """Read the figures off the frontier, as ``--json`` prints them."""
    unslowed, schedule, baseline = select(plans, Objective()), plans.schedule, plans.baseline
    rows = [_row("no slowdown", unslowed)]
    for pct in SLOWDOWNS_PCT:
        limit_s = unslowed_s(plans) * (1.0 + pct / 100.0)
        if limit_s < plans.iteration_time_s[-1]:
            plan = select(plans, Objective("max_slowdown", max_slowdown_pct=pct))
            rows.append(_row(f"+{pct:g} %", plan, straggler_s=limit_s))
    rows.append(_row("least energy", select(plans, Objective("min_energy"))))
    rows.append(_row("T*", plans.plan(len(plans) - 1)))
    return {
        "ranks": schedule.ranks,
        "stages": schedule.stages,
        "microbatches": schedule.microbatches,
        "schedule": schedule.name,
        "computations": len(plans.computations()),
        "plans": len(plans),
        "baseline_iteration_time_s": baseline.iteration_time_s,
        "baseline_energy_j": baseline.energy_j,
        "gap_mean_pct": float(plans.waiting_gap_pct.mean()),
        "gap_worst_pct": float(plans.waiting_gap_pct.max()),
        "solve_time_s": plans.solve_time_s,
        "blocking_power_w": plans.blocking_power_w,
        "t_min_s": plans.t_min_s,
        "t_star_s": plans.t_star_s,
        "reserve_pct": plans.reserve_pct,
        "variation_slowdown_pct": plans.variation_slowdown_pct,
        "rows": rows,
        "costs": asdict(costs_of(unslowed)),
        "profile_error": None if error is None else asdict(error),
        "few_clocks": None if few is None else asdict(few),
    }


def _row(name: str, plan: FrequencyPlan, *, straggler_s: float = 0.0) -> Figures:
    """Read a plan off, and what a replica saves at it beside a straggler as slow as asked, else as the plan.

    ``saving_pct`` compares totals over each plan's own time, ``straggler_saving_pct`` both over the
    straggler's time, the rest of it spent waiting. ``saving_within_pct`` is half of the interval that holds
    the saving 95 times in 100, by the profile's errors (None: it has none).

    Source: arXiv 2312.06902, equation 3.
    """
    plans = plan.of
    until_s = max(straggler_s, plan.iteration_time_s, plans.baseline.iteration_time_s)
    planned_j, waited_j = plans.waiting_j(select_for(plans, until_s).index, until_s)
    names = ("iteration_time_s", "slowdown_pct", "energy_j", "saving_pct", "saving_within_pct")
    return {
        "name": name,
        **{key: getattr(plan, key) for key in names},
        "gap_pct": float(plans.gap_pct[plan.index]),
        "straggler_saving_pct": 100.0 * (1.0 - planned_j / waited_j),
    }


def render(plans: PlanSet, figures: Figures) -> str:
    """Lay the figures out for a terminal, 80 columns wide."""
    ranks, schedule, baseline = plans.schedule.ranks, plans.schedule, plans.baseline
    gpus = "" if schedule.stages == ranks else f" on {count_of(ranks, 'GPU')}"
    head = (
        f"{count_of(schedule.stages, 'stage')}{gpus}, {count_of(schedule.microbatches, 'microbatch', 'es')},"
        f" {schedule.name}; blocking power (one GPU that waits) {plans.blocking_power_w:g} W\n"
        f"all clocks at maximum: {baseline.iteration_time_s:.6g} s, {baseline.energy_j:.6g} J;"
        f" fastest plan (T_min) {plans.t_min_s:.6g} s\n"
        f"slowest plan (T*) {plans.t_star_s:.6g} s: beyond it lower clocks save nothing, even in waits\n"
    )
    columns = [
        ("plan", "name", ""),
        ("time s", "iteration_time_s", ".6g"),
        ("slower %", "slowdown_pct", "z.2f"),
        ("energy J", "energy_j", ".6g"),
        ("saving %", "saving_pct", "z.2f"),
        ("+- %", "saving_within_pct", ".2f"),
        ("gap %", "gap_pct", "z.3f"),
        ("straggler %", "straggler_saving_pct", "z.2f"),
    ]
    if all(row["saving_within_pct"] is None for row in figures["rows"]):
        del columns[5]
    rows = [[format(row[key], form) for _, key, form in columns] for row in figures["rows"]]
    costs = figures["costs"]
    after, before = costs["power"], costs["power_before"]
    foot = (
        f"\n{len(plans)} plans, solved in {plans.solve_time_s:.2f} s; gap to the certified bound in the model"
        f" of this profile, over each plan's time: mean {figures['gap_mean_pct']:.3f} %, worst"
        f" {figures['gap_worst_pct']:.3f} %\n"
        f"no slowdown: at most {costs['changes']} changes of one GPU's clock per iteration,"
        f" {costs['changes_per_s']:.3g} per second; {costs['splits']} computations"
        " change theirs while they run.\n"
        f"Waiting takes {costs['waiting_j']:.5g} J (before {costs['waiting_before_j']:.5g} J); the pipeline's"
        f" power is {after['mean_w']:.0f} W on average, {after['least_w']:.0f} to {after['peak_w']:.0f} W"
        f" (before {before['mean_w']:.0f} W, {before['least_w']:.0f} to {before['peak_w']:.0f} W)"
    )
    if plans.budget.per_gpu_per_s == 0.0:
        most_pct = 100.0 * (1.0 - plans.lower_bound_j[0] / baseline.energy_j)
        with_more = f"with a clock for each computation at most {most_pct:.2f} % would be saved"
        foot += f"\neach GPU keeps one clock; {with_more} without slowdown"
    if plans.reserve_pct:
        longer = f"{plans.reserve_pct:g} % longer, as durations vary"
        foot += f"\nreserve: stretched computations are planned {longer}"
    if (slower_pct := plans.variation_slowdown_pct) is not None:
        longer = f"an iteration of the fastest plan lasts {slower_pct:.2f} % longer"
        foot += f"\nas durations varied in the profile, {longer}"
    if (few := figures["few_clocks"]) is not None and few["scatter_pct"] is None:
        foot += f"\n{FewClocks(**few)}"
    return "\n".join([head, grid([name for name, *_ in columns], rows), sentences(foot)])
