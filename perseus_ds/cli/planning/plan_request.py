"""The request of ``perseus-ds plan``: as the job beside the profile asks, where flags do not override it."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from perseus_ds.cli.output import remark
from perseus_ds.cli.terminal import counted
from perseus_ds.config import shown
from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan import PlanRequest, read_request
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.solving.reserve import Reserve, reserve_in_words
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.profile import Profile
from perseus_ds.run_directory import RunDirectory
from perseus_ds.schedule import TEXTBOOK, Schedule, textbook

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
        reserve_pct=_said(options.reserve_pct, 0.0 if options.loads is None else "auto"),
        split=options.split or "auto",
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
    reserve_pct = _said(options.reserve_pct, job.reserve_pct if options.loads is None else "auto")
    split, waits = _said(options.split, job.split), _said(options.waits, job.waits)
    budget = _budget(options, job.budget)
    fingerprint = {
        **job.fingerprint,
        "reserve_pct": reserve_in_words(reserve_pct),
        "clock_changes": f"split {split}, waits {waits}{budget}{_timelines_told(options, job)}",
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
        ("split", shown(asked.split), shown(job.split)),
        ("waits", shown(asked.waits), shown(job.waits)),
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
    return shown(reserve) if reserve == "auto" else f"{reserve:g} %"


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
