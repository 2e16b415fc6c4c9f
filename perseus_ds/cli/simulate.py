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
from pathlib import Path
from typing import Any

import numpy as np

from perseus_ds.cli.output import (
    DONE,
    bar,
    bold,
    count,
    grid,
    log_stderr,
    print_result,
    sentences,
)
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile, smooth
from perseus_ds.profile.files import names_profile
from perseus_ds.simulation.emulator import DEFAULT_CLOCKS, Emulated, Emulator, means
from perseus_ds.simulation.scenario import Scenario, parse_straggler, read_scenario

Figures = dict[str, Any]
_MOST_DECISIONS = 12


def compare(before: Emulated, after: Emulated) -> Figures:
    """Set two runs of one job side by side, as ``--json`` prints them: nothing here is measured.

    ``answers_cost_pct`` is the time that answers to stragglers cost, in percent of 1 000 iterations.
    """
    one, other = _side(before), _side(after)
    return {
        "simulated": True,
        "gpus": after.gpus,
        "iterations": after.iterations,
        "default_clocks": one,
        "plan": other,
        "saving_pct": 100.0 * (1.0 - other["energy_j"] / one["energy_j"]),
        "slowdown_pct": 100.0 * (other["iteration_time_s"] / one["iteration_time_s"] - 1.0),
        "decisions": [
            {
                "iteration": n,
                "sync_time_s": decision.sync_time_s,
                "stragglers": [
                    f"pipeline {s.replica} x{s.slowdown:.3f} ({s.cause.text})" for s in decision.stragglers
                ],
            }
            for n, decision in enumerate(after.decisions)
            if decision.changed
        ],
        "answers_cost_pct": after.answers_cost_pct,
    }


def _side(found: Emulated) -> Figures:
    """Return means per iteration of the whole job, and its power."""
    time_s, energy_j = means(found)
    power_w = found.power_w if len(found.power_w) else np.array([energy_j / time_s])
    return {
        "iteration_time_s": time_s,
        "energy_j": energy_j,
        "by_cause_j": {cause: joules / found.iterations for cause, joules in found.by_cause_j.items()},
        "changes_per_s_and_gpu": found.changes_per_s(),
        "power_mean_w": float(power_w.mean()),
        "power_peak_w": float(power_w.max()),
        "power_swing_w": float(power_w.max() - power_w.min()),
        "power_deviation_w": float(power_w.std()),
    }


def render(figures: Figures) -> str:
    """Lay the figures out for a terminal, 80 columns wide."""
    before, after = figures["default_clocks"], figures["plan"]
    names = {
        "mean power, kW": "power_mean_w",
        "peak power, kW": "power_peak_w",
        "swing (peak - lowest), kW": "power_swing_w",
        "standard deviation, kW": "power_deviation_w",
    }
    thousands = {
        "energy per iteration, kJ": (before["energy_j"], after["energy_j"]),
        **{f"  {cause}, kJ": (j, after["by_cause_j"][cause]) for cause, j in before["by_cause_j"].items()},
        **{name: (before[key], after[key]) for name, key in names.items()},
    }
    quantities = {"time per iteration, s": (before["iteration_time_s"], after["iteration_time_s"])}
    quantities |= {name: (one / 1e3, other / 1e3) for name, (one, other) in thousands.items()}
    rows = [
        [name, f"{one:.6g}", f"{other:.6g}", f"{100.0 * (other / one - 1.0):+.2f} %" if one else ""]
        for name, (one, other) in quantities.items()
    ]
    decisions = [
        f"  iteration {one['iteration']}: {', '.join(one['stragglers']) or 'nobody slow'}; "
        + ("all at the objective's plan" if (s := one["sync_time_s"]) is None else f"meet at {s:.4g} s")
        for one in figures["decisions"]
    ]
    saved = f"{figures['saving_pct']:.2f} % energy"
    lines = [
        f"simulated: {figures['gpus']} GPUs, {figures['iterations']} iterations",
        grid(("", "default clocks", "plan", "difference"), rows),
        f"changes of clock per second and GPU: {after['changes_per_s_and_gpu']:.1f}",
        bold(f"saved: {saved} at {figures['slowdown_pct']:+.2f} % time (simulated)"),
    ]
    if decisions:
        more = len(decisions) - _MOST_DECISIONS
        lines.append("decisions:")
        lines += [sentences(line) for line in decisions[:_MOST_DECISIONS]]
        lines += [f"  and {more} more"] if more > 0 else []
        cost = 10.0 * figures["answers_cost_pct"]
        lines.append(f"answers to stragglers cost the time of {cost:.3g} iterations")
    return "\n".join(lines)


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
    profile = smooth(read_profile(options.profile), scatter=True)
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
    figures = compare(before, after)
    print_result(json.dumps(figures, indent=1) if options.json else render(figures))
    return DONE


def _scenario(options: argparse.Namespace) -> Scenario:
    """Read the scenario, and lay over it what was typed."""
    names = "pipelines", "tensor", "iterations", "gpu"
    typed = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.straggler is not None:
        typed["stragglers"] = [parse_straggler(text) for text in options.straggler]
    return read_scenario(options.scenario, typed)
