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
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar, get_args

from perseus_ds.cli.output import (
    DONE,
    bar,
    count,
    counted,
    grid,
    names_profile,
    not_negative,
    not_negative_or_automatic,
    positive,
    refuse_idle,
    remark,
    say,
    sentences,
    waiting_powers,
)
from perseus_ds.config import Objective
from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan import (
    FrequencyPlan,
    PlanRequest,
    PlanSet,
    build,
    doubt,
    read_request,
    select,
    select_for,
    too_little_reserve,
    unslowed_s,
    verify,
    write_plans,
)
from perseus_ds.plan.between import with_plan_within
from perseus_ds.plan.budget import GPUS_PER_NODE, ChangeBudget
from perseus_ds.plan.playing.costs import PlanCosts, costs_of
from perseus_ds.plan.playing.expected import with_power_ratio
from perseus_ds.plan.profile_error import EntryError, FewClocks, few_clocks, profile_error
from perseus_ds.plan.solving.reserve import UNKNOWN_PCT, Reserve, reserve_in_words
from perseus_ds.plan.solving.switching import Split, Switching, Wait
from perseus_ds.plan.timelines import read_timelines
from perseus_ds.profile import Profile, read_profile, smoothed
from perseus_ds.run_directory import RunDirectory
from perseus_ds.schedule import TEXTBOOK, Schedule, dag_of, textbook

# The request of ``perseus-ds plan``: as the job beside the profile asks, where flags do not override it.

T = TypeVar("T")

ASSUMED_BLOCKING_POWER_W = 83.64  # A100; Perseus artifact (ml-energy/zeus, branch kronos)
_OF_A_RUN = re.compile(r"profile(?:\.(\d+))?\.json")


def request_of(options: argparse.Namespace, profile: Profile) -> PlanRequest:
    """Take the job's own request from the profile's run directory, else what the flags state.

    What flags change of the job's request is reported in one line.

    Raises:
        PlanError: no request there and no sizes given, or sizes that do not fit the profile.
    """
    if (job := _request_beside(options.profile, profile)) is None:
        return _by_flags(options, profile)
    asked = _changed(job, options, profile)
    _tell(job, asked, options)
    return asked


def switching_of(request: PlanRequest, options: argparse.Namespace, profile: Profile) -> Switching:
    """Take the flags, else the profile's calibration; a latency is a call and, as long, its settling."""
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
    return replace(switching, split=request.split, waits=request.waits, budget=request.budget)


def _request_beside(file: Path, profile: Profile) -> PlanRequest | None:
    """The request of the job that measured this profile; None without one, or where it is another job's."""
    if (name := _OF_A_RUN.fullmatch(file.name)) is None:
        return None
    path = RunDirectory(file.parent).request_of(int(name[1] or 0))
    if not path.exists():
        return None
    request = read_request(path)
    other = [key for key, value in profile.fingerprint.items() if request.fingerprint.get(key) != value]
    if other:
        remark(f"{path} is not of the job that measured {file.name} ({', '.join(other)}): not used")
        return None
    return request


def _by_flags(options: argparse.Namespace, profile: Profile) -> PlanRequest:
    if options.stages is None or options.microbatches is None:
        raise PlanError(
            f"no job's plan_request.json beside {options.profile}", hint="give --stages and --microbatches"
        )
    schedule = _textbook(options, profile, options.schedule or "1f1b")
    return PlanRequest(
        schedule,
        fingerprint=profile.fingerprint,
        blocking_power_w=_blocking_power_w(profile, options),
        reserve_pct=_said(options.reserve_pct, 0.0 if options.loads is None else "automatic"),
        split=options.split or "automatic",
        waits=options.waits or "never",
        timelines=_timelines(options, None),
        budget=_budget(options, ChangeBudget()),
    )


def _budget(options: argparse.Namespace, otherwise: ChangeBudget) -> ChangeBudget:
    """The budget of changes: what flags state, else the job's."""
    return ChangeBudget(
        _said(options.changes_per_s, otherwise.per_gpu_per_s),
        _said(options.node_changes_per_s, otherwise.per_node_per_s),
        _said(options.gpus_per_node, otherwise.gpus_per_node),
    )


def _changed(job: PlanRequest, options: argparse.Namespace, profile: Profile) -> PlanRequest:
    """Lay the flags over the job's request; its fingerprint states what they changed."""
    reserve_pct = _said(options.reserve_pct, job.reserve_pct if options.loads is None else "automatic")
    split, waits = _said(options.split, job.split), _said(options.waits, job.waits)
    budget = _budget(options, job.budget)
    fingerprint = {
        **job.fingerprint,
        "reserve_pct": reserve_in_words(reserve_pct),
        "clock_changes": f"split {split}, waits {waits}{budget}".replace("automatic", "auto")
        + _timelines_told(options, job),
    }
    schedule = job.schedule
    if _another_schedule(options, schedule):
        schedule, fingerprint = _textbook(options, profile, _name(options, schedule), schedule), {}
    if options.blocking_power_w is not None:
        _check_waiting(profile, options.blocking_power_w, options.profile)
    return replace(
        job,
        schedule=schedule,
        fingerprint=fingerprint or profile.fingerprint,
        blocking_power_w=_said(options.blocking_power_w, job.blocking_power_w),
        reserve_pct=reserve_pct,
        split=split,
        waits=waits,
        budget=budget,
        timelines=_timelines(options, job.timelines),
    )


def _timelines(options: argparse.Namespace, job: str | None) -> str | None:
    return job if options.timelines is None else str(options.timelines)


def _timelines_told(options: argparse.Namespace, job: PlanRequest) -> str:
    """As the fingerprint of a job with these timelines names them."""
    if options.timelines is not None:
        return f", timelines {options.timelines}"
    _, mark, told = job.fingerprint.get("clock_changes", "").partition(", timelines ")
    return mark + told


def _said(flag: T | None, otherwise: T) -> T:
    return otherwise if flag is None else flag


def _another_schedule(options: argparse.Namespace, schedule: Schedule) -> bool:
    asked = (options.schedule, options.stages, options.microbatches, options.chunks, options.group)
    jobs = (schedule.name, schedule.stages, schedule.microbatches, None, None)
    return any(flag not in {None, own} for flag, own in zip(asked, jobs, strict=True))


def _name(options: argparse.Namespace, schedule: Schedule) -> str:
    name: str = options.schedule or schedule.name
    if name not in TEXTBOOK:
        raise PlanError(f"the job's schedule {name} has one size", hint=f"--schedule {' or '.join(TEXTBOOK)}")
    return name


def _textbook(
    options: argparse.Namespace, profile: Profile, name: str, job: Schedule | None = None
) -> Schedule:
    stages = options.stages or (profile.stages if job is None else job.stages)
    if profile.stages != stages:
        raise PlanError(
            f"{options.profile} has {counted(profile.stages, 'stage')}, --stages is {stages}",
            hint=f"give --stages {profile.stages}",
        )
    microbatches = options.microbatches or (1 if job is None else job.microbatches)
    return textbook(
        name, stages=stages, microbatches=microbatches, chunks=options.chunks, group=options.group
    )


def _tell(job: PlanRequest, asked: PlanRequest, options: argparse.Namespace) -> None:
    """Describe whose plan it is, and what is not as the job has it."""
    found = (
        ("schedule", _in_words(asked.schedule), _in_words(job.schedule)),
        ("blocking power", f"{asked.blocking_power_w:g} W", f"{job.blocking_power_w:g} W"),
        ("reserve", _with_unit(asked.reserve_pct), _with_unit(job.reserve_pct)),
        ("split", asked.split, job.split),
        ("waits", asked.waits, job.waits),
        ("budget of changes", str(asked.budget) or "none", str(job.budget) or "none"),
        ("timelines", asked.timelines or "none", job.timelines or "none"),
    )
    differs = [f"{what} {ours} (the job: {jobs})" for what, ours, jobs in found if ours != jobs]
    if options.switch_latency_ms is not None:
        differs.append(f"a change of clock takes {options.switch_latency_ms:g} ms (the job: as calibrated)")
    if options.wait_power_w is not None:
        differs.append("waiting power by clock (the job: as measured)")
    if differs:
        remark(f"not as the job plans: {'; '.join(differs)}")
    else:
        remark(f"as the job plans: {_in_words(job.schedule)}, reserve {_with_unit(job.reserve_pct)}")


def _with_unit(reserve: Reserve) -> str:
    return reserve if reserve == "automatic" else f"{reserve:g} %"


def _in_words(schedule: Schedule) -> str:
    extent = sum(map(len, schedule.orders))
    return f"{schedule.name} {schedule.stages} x {schedule.microbatches} of {extent} instructions"


def _blocking_power_w(profile: Profile, options: argparse.Namespace) -> float:
    if options.blocking_power_w is None and profile.blocking_power_w is not None:
        return profile.blocking_power_w
    stated_w: float | None = options.blocking_power_w
    if stated_w is None:
        stated_w = ASSUMED_BLOCKING_POWER_W
        remark(
            f"assuming a blocking power (one GPU that waits) of {stated_w} W (A100, Perseus artifact);"
            " give --blocking-power-w"
        )
    _check_waiting(profile, stated_w, options.profile)
    return stated_w


def _check_waiting(profile: Profile, blocking_power_w: float, file: Path) -> None:
    """Refuse a waiting GPU that takes more power than one that computes at its highest clock.

    Raises:
        PlanError: naming the computation.
    """
    for stage, kind in profile.points:
        fastest = profile.of(stage, kind)[0]
        power_w = fastest.energy_j / fastest.time_s
        if power_w < blocking_power_w:
            raise PlanError(
                f"{file}: stage {stage} {kind.words} at {fastest.clock_mhz} MHz takes {power_w:.4g} W, less"
                f" than the {blocking_power_w:g} W of a GPU that waits",
                hint="give --blocking-power-w for this GPU; times are seconds, energies joules of one GPU",
            )


# What ``perseus-ds plan`` prints: the frontier in a few figures.

SLOWDOWNS_PCT = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One point of the frontier, and what a replica saves beside a straggler of that iteration time.

    ``saving_pct`` compares totals over each plan's own time; ``straggler_saving_pct`` compares both
    over the straggler's time, the rest of it spent waiting. ``saving_within_pct`` is half of the interval
    that holds the saving 95 times in 100, by the profile's errors (None: it has none).
    """

    name: str
    iteration_time_s: float
    slowdown_pct: float
    energy_j: float
    saving_pct: float
    saving_within_pct: float | None
    gap_pct: float
    straggler_saving_pct: float


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A frontier in figures; ``checked`` states how many plans ``--verify`` has passed."""

    ranks: int
    stages: int
    microbatches: int
    schedule: str
    computations: int
    blocking_power_w: float
    plans: int
    t_min_s: float
    t_star_s: float
    baseline_iteration_time_s: float
    baseline_energy_j: float
    gap_mean_pct: float
    gap_worst_pct: float
    solve_time_s: float
    reserve_pct: float
    variation_slowdown_pct: float | None
    checked: int | None
    rows: tuple[Row, ...]
    costs: PlanCosts
    profile_error: EntryError | None = None
    few_clocks: FewClocks | None = None

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return asdict(self)


def summarise(
    plans: PlanSet,
    *,
    checked: int | None = None,
    error: EntryError | None = None,
    few: FewClocks | None = None,
) -> PlanSummary:
    """Read the figures off the frontier."""
    rows = [_row("no slowdown", select(plans, Objective()))]
    for pct in SLOWDOWNS_PCT:
        limit_s = unslowed_s(plans) * (1.0 + pct / 100.0)
        if limit_s < plans.iteration_time_s[-1]:
            plan = select(plans, Objective("max_slowdown", max_slowdown_pct=pct))
            rows.append(_row(f"+{pct:g} %", plan, straggler_s=limit_s))
    rows.append(_row("least energy", select(plans, Objective("min_energy"))))
    rows.append(_row("T*", plans.plan(len(plans) - 1)))
    return PlanSummary(
        ranks=plans.schedule.ranks,
        stages=plans.schedule.stages,
        microbatches=plans.schedule.microbatches,
        schedule=plans.schedule.name,
        computations=len(plans.computations()),
        blocking_power_w=plans.blocking_power_w,
        plans=len(plans),
        t_min_s=plans.t_min_s,
        t_star_s=plans.t_star_s,
        baseline_iteration_time_s=plans.baseline.iteration_time_s,
        baseline_energy_j=plans.baseline.energy_j,
        gap_mean_pct=float(plans.waiting_gap_pct.mean()),
        gap_worst_pct=float(plans.waiting_gap_pct.max()),
        solve_time_s=plans.solve_time_s,
        reserve_pct=plans.reserve_pct,
        variation_slowdown_pct=plans.variation_slowdown_pct,
        checked=checked,
        rows=tuple(rows),
        costs=costs_of(select(plans, Objective())),
        profile_error=error,
        few_clocks=few,
    )


def render(summary: PlanSummary) -> str:
    """Lay the figures out for a terminal, 80 columns wide."""
    s = summary
    head = (
        f"{_stages(s)}, {counted(s.microbatches, 'microbatch', 'es')}, {s.schedule};"
        f" blocking power (one GPU that waits) {s.blocking_power_w:g} W\n"
        f"all clocks at maximum: {s.baseline_iteration_time_s:.6g} s, {s.baseline_energy_j:.6g} J;"
        f" fastest plan (T_min) {s.t_min_s:.6g} s\n"
        f"slowest plan (T*) {s.t_star_s:.6g} s: beyond it lower clocks save nothing, even in waits\n"
    )
    foot = (
        f"\n{s.plans} plans, solved in {s.solve_time_s:.2f} s; gap to the certified bound in the model of"
        f" this profile, over each plan's time: mean {s.gap_mean_pct:.3f} %, worst {s.gap_worst_pct:.3f} %"
    )
    foot += "\n" + _costs_line(s.costs)
    if s.reserve_pct:
        foot += f"\nreserve: stretched computations are planned {s.reserve_pct:g} % longer, as durations vary"
    if s.variation_slowdown_pct is not None:
        foot += (
            "\nas durations varied in the profile, an iteration of the fastest plan lasts"
            f" {s.variation_slowdown_pct:.2f} % longer"
        )
    if s.few_clocks is not None and s.few_clocks.scatter_pct is None:
        foot += f"\n{s.few_clocks}"
    if s.checked is not None:
        foot += f"\nverified: {s.checked} plans, their times, energies and bounds"
    table = grid(_headings(s), [_cells(row) for row in s.rows])
    return "\n".join([head, table, sentences(foot)])


def _costs_line(costs: PlanCosts) -> str:
    """What the first row asks of clocks and of the site."""
    after, before = costs.power, costs.power_before
    return (
        f"no slowdown: at most {costs.changes} changes of one GPU's clock per iteration,"
        f" {costs.changes_per_s:.3g} per second; {costs.splits} computations"
        " change theirs while they run.\nWaiting takes"
        f" {costs.waiting_j:.5g} J (before {costs.waiting_before_j:.5g} J); the pipeline's power is"
        f" {after.mean_w:.0f} W on average, {after.least_w:.0f} to {after.peak_w:.0f} W"
        f" (before {before.mean_w:.0f} W, {before.least_w:.0f} to {before.peak_w:.0f} W)"
    )


def _knows_errors(summary: PlanSummary) -> bool:
    return any(row.saving_within_pct is not None for row in summary.rows)


def _headings(summary: PlanSummary) -> list[str]:
    within = ["+- %"] if _knows_errors(summary) else []
    return ["plan", "time s", "slower %", "energy J", "saving %", *within, "gap %", "straggler %"]


def _stages(summary: PlanSummary) -> str:
    if summary.stages == summary.ranks:
        return counted(summary.stages, "stage")
    return f"{counted(summary.stages, 'stage')} on {counted(summary.ranks, 'GPU')}"


def _row(name: str, plan: FrequencyPlan, *, straggler_s: float = 0.0) -> Row:
    """Read one row off; the straggler is as slow as asked, else as the plan itself."""
    return Row(
        name=name,
        iteration_time_s=plan.iteration_time_s,
        slowdown_pct=plan.slowdown_pct,
        energy_j=plan.energy_j,
        saving_pct=plan.saving_pct,
        saving_within_pct=plan.saving_within_pct,
        gap_pct=float(plan.of.gap_pct[plan.index]),
        straggler_saving_pct=_straggler_saving_pct(plan.of, max(straggler_s, plan.iteration_time_s)),
    )


def _straggler_saving_pct(plans: PlanSet, straggler_s: float) -> float:
    """Compare both over the straggler's time: arXiv 2312.06902, equation 3."""
    until_s = max(straggler_s, plans.baseline.iteration_time_s)
    waiting_w = plans.baseline.blocking_power_w * plans.schedule.ranks
    waiting_j = waiting_w * (until_s - plans.baseline.iteration_time_s)
    effective_j = float(plans.effective_energy_j[select_for(plans, until_s).index])
    planned_j = effective_j + plans.blocking_total_w * until_s
    return 100.0 * (1.0 - planned_j / (plans.baseline.energy_j + waiting_j))


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"{row.iteration_time_s:.6g}",
        f"{row.slowdown_pct:z.2f}",
        f"{row.energy_j:.6g}",
        f"{row.saving_pct:z.2f}",
        *([] if row.saving_within_pct is None else [f"{row.saving_within_pct:.2f}"]),
        f"{row.gap_pct:z.3f}",
        f"{row.straggler_saving_pct:z.2f}",
    ]


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
        choices=get_args(Wait),
        help="lower the clock in long waits; default: the job's, else never",
    )
    parser.add_argument(
        "--split",
        choices=get_args(Split),
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
        type=not_negative_or_automatic,
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
    if request.reserve_pct == "automatic" and profile.variation() is None:
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
    if options.waits == "automatic" and not profile.blocking_w:
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
