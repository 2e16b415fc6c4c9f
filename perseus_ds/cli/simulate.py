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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from perseus_ds.cli.output import (
    DONE,
    bar,
    bold,
    count,
    grid,
    names_profile,
    not_negative,
    positive,
    refuse_idle,
    remark,
    say,
    sentences,
)
from perseus_ds.device.changing.clock_change import ClockChange
from perseus_ds.device.simulated.models import model_named
from perseus_ds.plan import read_plans
from perseus_ds.profile import Profile, read_profile, smoothed
from perseus_ds.simulation.emulator import (
    DEFAULT_CLOCKS,
    ClusterShape,
    Conditions,
    Emulated,
    EmulatedLoads,
    Emulator,
    means,
    parse_disturbance,
    parse_loads,
)

# What ``perseus-ds simulate`` prints: default clocks beside the plan, and what was decided.


@dataclass(frozen=True, slots=True)
class EmulatedSide:
    """Means per iteration of the whole job, and its power."""

    iteration_time_s: float
    energy_j: float
    by_cause_j: Mapping[str, float]
    changes_per_s_and_gpu: float
    power_mean_w: float
    power_peak_w: float
    power_swing_w: float
    power_deviation_w: float


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision that changed plans: at which iteration, who was slow and why, and what the others run."""

    iteration: int
    sync_time_s: float | None
    stragglers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulateSummary:
    """A simulated job: everything is simulated, nothing measured.

    ``answers_cost_pct`` is the time that answers to stragglers cost, in percent of 1 000
    iterations.
    """

    gpus: int
    iterations: int
    default_clocks: EmulatedSide
    plan: EmulatedSide
    saving_pct: float
    slowdown_pct: float
    decisions: tuple[Decided, ...]
    answers_cost_pct: float

    def as_json(self) -> dict[str, object]:
        """Return plain values, units in the keys."""
        return {"simulated": True, **asdict(self)}


def compared(before: Emulated, after: Emulated) -> SimulateSummary:
    """Set two runs of one job side by side."""
    one, other = _side(before), _side(after)
    return SimulateSummary(
        gpus=after.gpus,
        iterations=after.iterations,
        default_clocks=one,
        plan=other,
        saving_pct=100.0 * (1.0 - other.energy_j / one.energy_j),
        slowdown_pct=100.0 * (other.iteration_time_s / one.iteration_time_s - 1.0),
        decisions=tuple(_decided(after)),
        answers_cost_pct=after.answers_cost_pct,
    )


def render(summary: SimulateSummary) -> str:
    """Lay the figures out for a terminal, 80 columns wide."""
    s, before, after = summary, summary.default_clocks, summary.plan
    rows = [
        _cells("time per iteration, s", before.iteration_time_s, after.iteration_time_s),
        _cells("energy per iteration, kJ", before.energy_j / 1e3, after.energy_j / 1e3),
        *(
            _cells(f"  {cause}, kJ", joules / 1e3, after.by_cause_j[cause] / 1e3)
            for cause, joules in before.by_cause_j.items()
        ),
        _cells("mean power, kW", before.power_mean_w / 1e3, after.power_mean_w / 1e3),
        _cells("peak power, kW", before.power_peak_w / 1e3, after.power_peak_w / 1e3),
        _cells("swing (peak - lowest), kW", before.power_swing_w / 1e3, after.power_swing_w / 1e3),
        _cells("standard deviation, kW", before.power_deviation_w / 1e3, after.power_deviation_w / 1e3),
    ]
    lines = [
        f"simulated: {s.gpus} GPUs, {s.iterations} iterations",
        grid(("", "default clocks", "plan", "difference"), rows),
        f"changes of clock per second and GPU: {after.changes_per_s_and_gpu:.1f}",
        bold(f"saved: {s.saving_pct:.2f} % energy at {s.slowdown_pct:+.2f} % time (simulated)"),
    ]
    return "\n".join([*lines, *filter(None, [sentences("\n".join(_decision_lines(s)))])])


_MOST_DECISIONS = 12


def _decision_lines(summary: SimulateSummary) -> list[str]:
    shown = [
        f"  iteration {one.iteration}: {', '.join(one.stragglers) or 'nobody slow'};"
        + (" all at the objective's plan" if one.sync_time_s is None else f" meet at {one.sync_time_s:.4g} s")
        for one in summary.decisions[:_MOST_DECISIONS]
    ]
    left = len(summary.decisions) - len(shown)
    cost = f"answers to stragglers cost the time of {10.0 * summary.answers_cost_pct:.3g} iterations"
    return [
        *(["decisions:"] if shown else []),
        *shown,
        *([f"  and {left} more"] if left else []),
        *([cost] if shown else []),
    ]


def _cells(name: str, before: float, after: float) -> list[str]:
    change = f"{100.0 * (after / before - 1.0):+.2f} %" if before else ""
    return [name, f"{before:.6g}", f"{after:.6g}", change]


def _side(found: Emulated) -> EmulatedSide:
    time_s, energy_j = means(found)
    power_w = found.power_w if len(found.power_w) else np.array([energy_j / time_s])
    return EmulatedSide(
        iteration_time_s=time_s,
        energy_j=energy_j,
        by_cause_j={cause: joules / found.iterations for cause, joules in found.by_cause_j.items()},
        changes_per_s_and_gpu=found.changes_per_s(),
        power_mean_w=float(power_w.mean()),
        power_peak_w=float(power_w.max()),
        power_swing_w=float(power_w.max() - power_w.min()),
        power_deviation_w=float(power_w.std()),
    )


def _decided(found: Emulated) -> list[Decided]:
    return [
        Decided(
            n,
            decision.sync_time_s,
            tuple(f"pipeline {s.replica} x{s.slowdown:.3f} ({s.cause.text})" for s in decision.stragglers),
        )
        for n, decision in enumerate(found.decisions)
        if decision.changed
    ]


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
        remark(f"{options.plan} is for microbatches of one length; `plan --set reserve_pct=PCT` keeps some")
    troubles = [parse_disturbance(text) for text in options.straggler]
    with bar("default clocks") as progress:
        before = emulator.play(options.iterations, troubles, always=DEFAULT_CLOCKS, progress=progress)
    with bar("the plan") as progress:
        after = emulator.play(
            options.iterations, troubles, answered=not options.unanswered, progress=progress
        )
    summary = compared(before, after)
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
