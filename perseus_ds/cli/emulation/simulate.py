"""Run a plan in a job of any size, on emulated GPUs in virtual time.

PLAN is what `plan -o` wrote or a run directory's plan.json; PROFILE the measurements that are taken
for the truth (profile.json, or a CSV of Zeus). Every instruction of every GPU is emulated, with
clocks that change when they would. Stragglers are found and answered by the same code as in
training. The table compares the plan with default clocks under the same conditions.

A straggler is KIND:pipeline=P,... with from= and to= (iterations). Kinds: slow (factor=), cap
(mhz=; thermal or power cap), link (seconds= for all that is sent), input (seconds= before the first
instruction), lost, announced (factor=). With rank= and gpu= slow and cap hold for these alone.

Loads are lognormal:SIGMA, buckets:LENGTH[xWEIGHT],... or a CSV. Its columns are length (a
microbatch a row, taken in turn) or iteration,replica,microbatch,length (a sequence a row). What a
load costs is what the profile fitted; where it has no fit, time is in proportion to the length.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from perseus_ds.cli.emulation.simulate_summary import compared, render
from perseus_ds.cli.output import DONE, bar, names_profile, remark, say
from perseus_ds.cli.quantity import count, not_negative, positive, refuse_idle
from perseus_ds.device import ClockChange
from perseus_ds.device.simulated import model_named
from perseus_ds.plan import read_plans
from perseus_ds.profile import Profile, read_profile, smoothed
from perseus_ds.simulation.emulator import (
    DEFAULT_CLOCKS,
    ClusterShape,
    Conditions,
    EmulatedLoads,
    Emulator,
    parse_disturbance,
    parse_loads,
)

_TRACE_BIN_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds simulate``."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="plan.json")
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="profile.json, or a CSV of Zeus")
    size = parser.add_argument_group("the job")
    size.add_argument("--pipelines", type=count, default=1, metavar="N", help="data-parallel replicas (1)")
    size.add_argument("--tensor", type=count, default=1, metavar="N", help="GPUs of one pipeline rank (1)")
    size.add_argument("--gpus-per-node", type=count, default=8, metavar="N", help="share a driver (8)")
    size.add_argument("--iterations", type=count, default=20, metavar="N", help="default: %(default)s")
    size.add_argument("--straggler", action="append", default=[], metavar="KIND:...", help="see above")
    size.add_argument("--unanswered", action="store_true", help="leave stragglers without an answer")
    real = parser.add_argument_group("how real it is")
    real.add_argument(
        "--noise-pct", type=not_negative, default=0.0, metavar="PCT", help="of a computation (0)"
    )
    real.add_argument("--seed", type=int, help="of the noise and of drawn loads (0)")
    real.add_argument(
        "--work", type=positive, nargs="+", default=[1.0], metavar="X", help="batches' lengths, in turn"
    )
    real.add_argument("--loads", metavar="FILE|KIND:...", help="lengths of the microbatches; see above")
    real.add_argument(
        "--gpu", metavar="MODEL", help="waiting power by clock, and changes, of a simulated GPU"
    )
    real.add_argument(
        "--call-ms", type=not_negative, metavar="MS", help="a change of clock: the driver's call"
    )
    real.add_argument(
        "--settle-ms", type=not_negative, metavar="MS", help="after it, until the clock is in force"
    )
    real.add_argument(
        "--queue-ms", type=not_negative, metavar="MS", help="of a call that holds up the node's others"
    )
    real.add_argument("--stall-ms", type=not_negative, metavar="MS", help="for which a change stops the GPU")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("-o", "--output", type=Path, metavar="PAGE", help="draw iterations and power: HTML")


def run(options: argparse.Namespace) -> int:
    """Run default clocks and the plan; print the comparison."""
    profile, loads = smoothed(read_profile(options.profile), scatter=True), _loads(options)
    if not options.noise_pct and (loads is None or loads.draw is None):
        refuse_idle("give --noise-pct, or --loads of a distribution", seed=options.seed)
    if not options.straggler:
        refuse_idle("give --straggler", unanswered=options.unanswered)
    with names_profile(options.profile):
        plans, cluster = read_plans(options.plan), _cluster(options, profile)
        if loads is not None:
            loads.check(microbatches=plans.schedule.microbatches, pipelines=options.pipelines)
        emulator = Emulator(plans, profile, cluster, conditions=_conditions(options, loads))
    if loads is not None and not plans.load_variation:
        remark(f"{options.plan} was made for microbatches of one length; `plan --loads` keeps a reserve")
    troubles = [parse_disturbance(text) for text in options.straggler]
    with bar("default clocks") as progress:
        before = emulator.play(options.iterations, troubles, always=DEFAULT_CLOCKS, progress=progress)
    with bar("the plan") as progress:
        after = emulator.play(
            options.iterations, troubles, answered=not options.unanswered, progress=progress
        )
    summary = compared(before, after)
    if options.output is not None:
        from perseus_ds.report.page import Series, write_emulation  # noqa: PLC0415  # jinja2

        series = [
            Series(name, found.job_s, found.energy_j.sum(axis=1), found.power_w, found.trace.bin_s)
            for name, found in (("default clocks", before), ("the plan", after))
        ]
        write_emulation(
            series, options.output, subtitle=f"{before.gpus} GPUs, {options.iterations} iterations"
        )
    say(json.dumps(summary.as_json(), indent=1) if options.json else render(summary))
    return DONE


def _loads(options: argparse.Namespace) -> EmulatedLoads | None:
    return None if options.loads is None else parse_loads(options.loads, seed=options.seed or 0)


def _cluster(options: argparse.Namespace, profile: Profile) -> ClusterShape:
    return ClusterShape(
        pipelines=options.pipelines,
        tensor=options.tensor,
        gpus_per_node=options.gpus_per_node,
        change=_change(options),
        waiting_w=_waiting_w(options, profile),
    )


def _conditions(options: argparse.Namespace, loads: EmulatedLoads | None) -> Conditions:
    return Conditions(
        noise=options.noise_pct / 100.0,
        seed=options.seed or 0,
        work=options.work,
        loads=loads,
        trace_bin_s=_TRACE_BIN_S,
    )


def _change(options: argparse.Namespace) -> ClockChange:
    """What is given, else the GPU model's, else changes that take no time."""
    model = None if options.gpu is None else model_named(options.gpu)
    call_s = 0.0 if model is None else model.call_s
    settle_s = 0.0 if model is None else model.settle_s

    def given(name: str, otherwise_s: float) -> float:
        value_ms: float | None = getattr(options, name)
        return otherwise_s if value_ms is None else value_ms / 1e3

    settle_s = given("settle_ms", settle_s)
    return ClockChange(
        given("call_ms", call_s), settle_s, settle_s, given("queue_ms", 0.0), given("stall_ms", 0.0)
    )


def _waiting_w(options: argparse.Namespace, profile: Profile) -> dict[int, float] | None:
    """By clock where the GPU model or the profile has it; None is what the plan was made with."""
    if options.gpu is not None:
        return {int(mhz): watts for mhz, watts in model_named(options.gpu).blocking_w}
    return dict(profile.blocking_w) or None
