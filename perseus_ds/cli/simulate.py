"""Run a plan in a job of any size, on emulated GPUs in virtual time.

PLAN is what `plan -o` wrote or a run directory's plan.json; PROFILE the measurements that are taken
for the truth (profile.json, or a CSV of Zeus). Every instruction of every GPU is emulated, with
clocks that change when they would. Stragglers are found and answered by the same code as in
training. The table compares the plan with default clocks under the same conditions.

A straggler is KIND:pipeline=P,... with from= and to= (iterations). Kinds: slow (factor=), cap
(mhz=; thermal or power cap), link (seconds= for all that is sent), input (seconds= before the first
instruction), lost, announced (factor=). With rank= and gpu= slow and cap hold for these alone.

A scenario is a YAML file. Its keys are those of the options, stragglers (a list of mappings),
answered, noise_pct, seed, work, loads, gpus_per_node, call_ms, settle_ms, queue_ms and stall_ms;
docs/emulator.md has them all. Options here count more than its keys.
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
    log_stderr,
    names_profile,
    print_result,
    sentences,
)
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile, smoothed
from perseus_ds.simulation.emulator import (
    DEFAULT_CLOCKS,
    Emulated,
    Emulator,
    Scenario,
    means,
    parse_straggler,
    read_scenario,
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
    """A decision that changed plans: at which iteration, who was slow and why, and what the others run."""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``perseus-ds simulate``."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="plan.json")
    parser.add_argument("profile", type=Path, metavar="PROFILE", help="profile.json, or a CSV of Zeus")
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="a YAML file that describes the job")
    parser.add_argument("--pipelines", type=count, metavar="N", help="data-parallel replicas (1)")
    parser.add_argument("--tensor", type=count, metavar="N", help="GPUs of one pipeline rank (1)")
    parser.add_argument("--iterations", type=count, metavar="N", help="how many to run (20)")
    parser.add_argument("--straggler", action="append", metavar="KIND:...", help="see above")
    parser.add_argument(
        "--gpu", metavar="MODEL", help="waiting power by clock, and changes, of a simulated GPU"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(options: argparse.Namespace) -> int:
    """Run default clocks and the plan; print the comparison."""
    scenario = _scenario(options)
    profile = smoothed(read_profile(options.profile), scatter=True)
    with names_profile(options.profile):
        plans, cluster = read_plans(options.plan), scenario.cluster(profile)
        conditions = scenario.conditions(Path() if options.scenario is None else options.scenario.parent)
        emulator = Emulator(plans, profile, cluster, conditions=conditions)
    if conditions.loads is not None and not plans.load_variation:
        log_stderr(
            f"{options.plan} is for microbatches of one length: keep a reserve (`plan --set reserve_pct=PCT`)"
        )
    iterations, stragglers = scenario.iterations, scenario.stragglers
    with bar("default clocks") as progress:
        before = emulator.play(iterations, stragglers, always=DEFAULT_CLOCKS, progress=progress)
    with bar("the plan") as progress:
        after = emulator.play(iterations, stragglers, answered=scenario.answered, progress=progress)
    summary = compared(before, after)
    print_result(json.dumps(summary.as_json(), indent=1) if options.json else render(summary))
    return DONE


def _scenario(options: argparse.Namespace) -> Scenario:
    """Read the scenario, and lay over it what was typed."""
    names = "pipelines", "tensor", "iterations", "gpu"
    typed = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.straggler is not None:
        typed["stragglers"] = [parse_straggler(text) for text in options.straggler]
    return read_scenario(options.scenario, typed)
