"""The kernel level: which pair of clocks each kernel of an iteration wants, and what that saves.

trace    note what the instructions of a running job are made of
measure  replay each kernel class of a trace at every pair of clocks
plan     choose pairs: no time lost, some lost, least energy times time; by kernel, instruction, pass
show     print a plan again
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path

from perseus_ds.cli.output import (
    DONE,
    bar,
    count,
    grid,
    log_stderr,
    not_negative,
    positive,
    print_result,
    refuse_idle,
)
from perseus_ds.cli.run import checked_job
from perseus_ds.device.gpu import DeviceRequest, Gpu
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.models import MODELS
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import ConfigError
from perseus_ds.guard.open import choose
from perseus_ds.kernels.choose import launch_costs, smooth
from perseus_ds.kernels.measure import (
    CORE_CLOCKS,
    KernelRunner,
    MeasurementSettings,
    measure_kernels,
    simulated_runner,
)
from perseus_ds.kernels.plan import KERNEL_PLANS, LATENCIES_S, KernelPlan, kernel_plan
from perseus_ds.kernels.profile import KERNEL_PROFILES
from perseus_ds.kernels.segment import timelines_of
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelClass, merge
from perseus_ds.plan.record import write_timelines
from perseus_ds.run_directory.paths import RunDirectory

ITERATIONS = 2
_BY_SIGNAL = 128  # as shells number an end by signal
_NOISE = 0.005  # of the simulated GPU
_NAME, _CLASSES = 24, 20

_TRACE = """Run a job and note what its instructions are made of.

What stands after `--` is the job as you would start it. After a few iterations, --iterations of
them run under PyTorch's profiler, at default clocks, and count for no measurement. The rest of the
job is as ever. On CUDA a launch is an operator with its kernels, else an operator that computes.
All ranks write what they saw to the run directory; TRACE joins it.
"""
_MEASURE = """Measure the kernel classes of a trace.

Each class is launched again and again at every pair of clocks, until power stands still, then for
three windows of two seconds. What would be chosen is measured a second time. A class that cannot be
replayed is named and stays at the default clocks. With --simulated the same is done on a simulated
GPU, in virtual time.

On a real GPU this sets its clocks through the guard: give it a GPU on which nothing else runs.
"""
_PLAN = """Choose the pair of clocks of every kernel class.

PROFILE states what each class costs at each pair. It is what `kernels measure` wrote. TRACE states how often
and in which order they run. Prints the classes by their energy with their best pair, and the totals
by level, goal and scope. Then prints what is left at switching latencies from 0 to 40 ms. With -o
all of it goes to a file, for `kernels show`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of ``perseus-ds kernels``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(
        name: str, act: Callable[[argparse.Namespace], int], summary: str, text: str
    ) -> argparse.ArgumentParser:
        form = argparse.RawDescriptionHelpFormatter
        added = actions.add_parser(name, help=summary, description=text, formatter_class=form)
        added.set_defaults(act=act)
        return added

    one = action("trace", run_trace, "run a job and note the kernels of its instructions", _TRACE)
    one.usage = "%(prog)s [-h] --run-dir R -o TRACE [--iterations N] [-- JOB]"
    one.add_argument("-o", "--output", type=Path, required=True, metavar="TRACE", help="write it here")
    one.add_argument("--iterations", type=count, metavar="N", help=f"how many (default {ITERATIONS})")
    one.add_argument(
        "--run-dir", type=Path, required=True, metavar="R", help="in place of the block's run_dir"
    )
    join = "without one: join what a job has left in R"
    one.add_argument("job", nargs=argparse.REMAINDER, metavar="JOB", help=join)

    one = action("measure", run_measure, "time and energy of every class at every pair of clocks", _MEASURE)
    one.add_argument("trace", type=Path, metavar="TRACE", help="what `kernels trace` wrote")
    one.add_argument("-o", "--output", type=Path, required=True, metavar="PROFILE", help="write it here")
    one.add_argument("--simulated", choices=sorted(MODELS), metavar="GPU", help=f"one of {', '.join(MODELS)}")
    one.add_argument("--core-clocks", type=count, default=CORE_CLOCKS, help="how many (default %(default)s)")
    one.add_argument("--window-s", type=positive, default=2.0, help="of each measurement (default 2)")
    one.add_argument("--windows", type=count, default=3, help="for each pair (default 3)")

    one = action("plan", run_plan, "the best pairs, and what each level, goal and latency saves", _PLAN)
    one.add_argument("profile", type=Path, metavar="PROFILE", help="what `kernels measure` wrote")
    one.add_argument("trace", type=Path, metavar="TRACE", help="what `kernels trace` wrote")
    shown = "the tolerance shown (default 10)"
    one.add_argument("--slower", type=not_negative, default=10.0, metavar="PCT", help=shown)
    latency = "a switching latency to plan with; may be given several times (default: 0 to 40)"
    one.add_argument("--latency-ms", type=not_negative, action="append", metavar="MS", help=latency)
    one.add_argument("-o", "--output", type=Path, metavar="PLAN", help="write what was found to this file")
    lines = "write each instruction's frontier, for changes that take the last --latency-ms (default 40)"
    one.add_argument("--timelines", type=Path, metavar="FILE", help=lines)
    one.add_argument("--json", action="store_true", help="print as JSON")

    one = action("show", run_show, "a plan as table or JSON", "Show what `kernels plan -o` wrote.")
    one.add_argument("plan", type=Path, metavar="PLAN", help="what `kernels plan -o` wrote")
    one.add_argument("--json", action="store_true", help="print as JSON")
    one.add_argument("--classes", type=count, metavar="N", help=f"how many (default {_CLASSES})")


def run(options: argparse.Namespace) -> int:
    """Do what was asked for."""
    code: int = options.act(options)
    return code


def run_trace(options: argparse.Namespace) -> int:
    """Run the job where there is one, join what its ranks traced."""
    iterations, directory = options.iterations or ITERATIONS, RunDirectory(options.run_dir)
    if not options.job:
        refuse_idle("it belongs to a job after --", iterations=options.iterations)
    else:
        for old in directory.kernels.glob("rank*.json"):
            old.unlink()
        flags = {"PERSEUS_RUN_DIR": str(options.run_dir), "PERSEUS_TRACE_KERNELS": str(iterations)}
        job, environment = checked_job(options.job, flags)
        code = os.spawnvpe(os.P_WAIT, job[0], job, environment)  # noqa: S606  # the user's own
        if code != DONE:
            return code if code >= 0 else _BY_SIGNAL - code
    files = sorted(directory.kernels.glob("rank*.json"))
    if not files:
        raise ConfigError(
            f"{directory.kernels}: no rank has written a trace",
            hint=f"the job must train {iterations + 3} iterations or more",
        )
    trace = merge([KERNEL_TRACES.read(file) for file in files])
    KERNEL_TRACES.write(trace, options.output)
    overhead = "" if trace.overhead_pct is None else f"; traced iterations took {trace.overhead_pct:+.0f} %"
    print_result(
        f"{len(trace.sequences)} instructions, {trace.launches} launches per iteration of "
        f"{len(trace.classes)} kernel classes{overhead}: {options.output}"
    )
    if trace.shortfall:
        log_stderr(f"{options.output}: {trace.shortfall}")
    return DONE


def run_measure(options: argparse.Namespace) -> int:
    """Measure, write, state what was left out."""
    trace = KERNEL_TRACES.read(options.trace)
    gpu, find = _open_real() if options.simulated is None else _open_simulated(options.simulated)
    settings = MeasurementSettings(window_s=options.window_s, windows=options.windows)
    with gpu, bar("measuring") as progress:
        profile = measure_kernels(
            gpu, trace, find, core_clocks=options.core_clocks, settings=settings, progress=progress
        )
    KERNEL_PROFILES.write(profile, options.output)
    for one in profile.left_out:
        log_stderr(f"left at the default clocks: {one.kernel}: {one.reason}")
    if profile.why_not_memory is not None:
        log_stderr(f"core clocks only: {profile.why_not_memory}")
    print_result(
        f"measured {len(profile.measured)} of {len(trace.classes)} kernel classes at {len(profile.pairs)} "
        f"pairs of clocks on {profile.fingerprint['gpu']}: {options.output}"
    )
    return DONE


def _open_simulated(model: str) -> tuple[Gpu, Callable[[KernelClass], KernelRunner]]:
    settings = SimulatedSettings(gpu=model, noise=_NOISE, counter_noise=_NOISE / 2)
    gpu = SimulatedGpu(settings, time=VirtualTime())
    return gpu, partial(simulated_runner, gpu)


def _open_real() -> tuple[Gpu, Callable[[KernelClass], KernelRunner]]:
    replay = import_module("perseus_ds.runtime.kernel_tracing")
    device, uuid = replay.cuda_device()
    choice = choose(DeviceRequest("automatic", local_rank=0, uuid=uuid, lock=True))
    log_stderr(f"measuring on {choice.gpu.identify().name} ({choice.reason})")
    return choice.gpu, partial(replay.replay_of, device=device)


def run_plan(options: argparse.Namespace) -> int:
    """Choose, write, print."""
    latencies_s = LATENCIES_S if options.latency_ms is None else [ms / 1e3 for ms in options.latency_ms]
    profile, trace = KERNEL_PROFILES.read(options.profile), KERNEL_TRACES.read(options.trace)
    if trace.shortfall:
        log_stderr(f"{options.trace}: {trace.shortfall}")
    with bar("planning") as progress:
        plan = kernel_plan(
            profile, trace, tau=options.slower / 100.0, latencies_s=latencies_s, progress=progress
        )
    if options.timelines is not None:
        costs = launch_costs(smooth(profile), trace)
        lines = timelines_of(costs, trace, latencies_s[-1], spared_w=profile.spared_w)
        write_timelines(lines, options.timelines)
    if options.output is not None:
        KERNEL_PLANS.write(plan, options.output)
    print_result(json.dumps(asdict(plan), indent=1) if options.json else render(plan))
    return DONE


def run_show(options: argparse.Namespace) -> int:
    """Print the plan."""
    if options.json:
        refuse_idle("--json prints every class", classes=options.classes)
    plan = KERNEL_PLANS.read(options.plan)
    table = render(plan, most=options.classes or _CLASSES)
    print_result(json.dumps(asdict(plan), indent=1) if options.json else table)
    return DONE


def render(plan: KernelPlan, *, most: int = _CLASSES) -> str:
    """Lay a plan out in three tables: classes, totals, what each switching latency leaves."""
    classes = [
        [
            *(row.kernel if len(row.kernel) <= _NAME else f"{row.kernel[: _NAME - 2]}..", str(row.launches)),
            *(f"{row.time_share_pct:.2f}", f"{row.energy_share_pct:.2f}", row.pair),
            *(f"{row.time_pct:+.2f}", f"{row.energy_pct:+.2f}"),
        ]
        for row in plan.classes[:most]
    ]
    totals = [
        [
            *(one.goal, one.level, one.scope, f"{one.time_pct:+.2f}", f"{one.energy_pct:+.2f}"),
            *(f"{one.energy_se_pct:.2f}" if one.confirmed else "unknown", f"{one.gap_pct:.4f}"),
        ]
        for one in plan.totals
    ]
    left = [
        [f"{1e3 * one.latency_s:.4g} ms", f"{one.time_pct:+.2f}", f"{one.energy_pct:+.2f}", str(one.changes)]
        for one in plan.left
    ]
    headings = ("kernel class", "launches", "time %", "energy %", "best pair", "time", "energy")
    more = f"\n... and {len(plan.classes) - most} more" if len(plan.classes) > most else ""
    parts = [
        f"{plan.launches} launches, {plan.iteration_s:.4g} s of kernels per iteration, {plan.pairs} pairs",
        grid(headings, classes) + more,
        grid(("goal", "level", "scope", "time %", "energy %", "+- %", "gap %"), totals, texts=3),
        grid(("switching latency", "time %", "energy %, no time lost", "changes per iteration"), left),
    ]
    if plan.why_not_memory is not None:
        parts.append(f"core clocks only: {plan.why_not_memory}")
    if plan.left_out:
        parts.append(f"{len(plan.left_out)} classes stay at the default clocks:\n" + "\n".join(plan.left_out))
    return "\n\n".join(parts)
