"""Timelines of kernels in a pipeline: planned and run, beside whole clocks.

Run: ``python scripts/bench/joined/main.py [--gpu rtx-3080-ti] [--latency-ms 1 38] [--seeds 0 1 2]``. About
three CPU minutes a seed; everything is simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from kernels_measured import BATCH, NOISE, STAGES, measured
from players import default_clocks, play, policies_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
from gpt3_xl import trace_of

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange, SimulatedGpu, SimulatedSettings
from perseus_ds.device.simulated import VirtualTime
from perseus_ds.kernels import write_trace
from perseus_ds.kernels.choose import launch_costs, smoothed
from perseus_ds.kernels.segment import ChangeCost, timelines_of
from perseus_ds.plan import build, expected, select
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.timelines import InstructionTimelines
from perseus_ds.profile import Point, Profile
from perseus_ds.runtime.emulation import StageWork, works_of
from perseus_ds.schedule import Kind, textbook

MICROBATCHES, ITERATIONS = 8, 60
CLOCKS, LOWEST_SHARE = 8, 0.45
RESERVE_PCT = 1.0
WARM_S, LOOKS = 400.0, 20
BUBBLE = (STAGES - 1) / MICROBATCHES
"""Seconds of waiting for each of work, in 1F1B."""


def whole_clocks(settings: SimulatedSettings, works: dict[int, StageWork]) -> Profile:
    """What instructions and waits take at some core clocks, as a sweep without errors finds them.

    All energies are as at the temperature of default clocks.
    """
    model = SimulatedGpu(settings, time=VirtualTime()).model
    grid = [clock for clock in model.clocks_mhz if clock >= LOWEST_SHARE * model.max_clock_mhz]
    clocks = [grid[round(place * (len(grid) - 1) / (CLOCKS - 1))] for place in range(CLOCKS)]
    points: dict[tuple[int, Kind], list[Point]] = defaultdict(list)
    waiting_w = {}
    for stage, work in works.items():
        settled_c = None
        for clock in clocks:
            spent, own_w, at_c = at_clock(settings, work, clock)
            settled_c = at_c if settled_c is None else settled_c
            missing_w = model.leakage_w_per_k * (settled_c - at_c)
            waiting_w[clock] = own_w + missing_w
            for kind, (time_s, energy_j) in spent.items():
                points[stage, kind].append(Point(clock, time_s, energy_j + missing_w * time_s))
    rows = {key: tuple(found) for key, found in points.items()}
    leakage = model.leakage_w_per_k * model.thermal_k_per_w
    return Profile(rows, blocking_power_w=waiting_w[clocks[0]], blocking_w=waiting_w, leakage=leakage)


def at_clock(
    settings: SimulatedSettings, work: StageWork, clock_mhz: int
) -> tuple[dict[Kind, tuple[float, float]], float, float]:
    """Time and energy of a forward and a backward, waiting's power and the temperature after a while."""
    clock = VirtualTime()
    gpu = SimulatedGpu(settings, time=clock)
    gpu.lock_clock(clock_mhz)

    def once() -> tuple[dict[Kind, tuple[float, float]], float]:
        spent = {}
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            before_s, before_j = clock.now_s(), gpu.true_now().energy_j
            task = gpu.begin(work.of(kind))
            gpu.release(task)
            gpu.wait(task)
            spent[kind] = clock.now_s() - before_s, gpu.true_now().energy_j - before_j
        wait_s = BUBBLE * sum(time_s for time_s, _ in spent.values())
        before_j = gpu.true_now().energy_j
        clock.pass_s(wait_s)
        return spent, (gpu.true_now().energy_j - before_j) / wait_s

    while clock.now_s() < WARM_S:
        once()
    looks = [once() for _ in range(LOOKS)]
    mean = {
        kind: (fmean(one[kind][0] for one, _ in looks), fmean(one[kind][1] for one, _ in looks))
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    return mean, fmean(watts for _, watts in looks), gpu.true_now().temperature_c


def compared(
    settings: SimulatedSettings, profile: Profile, lines: tuple[InstructionTimelines, ...]
) -> dict[str, dict[str, float]]:
    """Plan without and with timelines, and run both beside default clocks."""
    assert settings.kernels is not None
    assert profile.blocking_power_w is not None
    works = works_of(dict.fromkeys(range(STAGES), 1.0), settings)
    change = ClockChange.of(SimulatedGpu(settings, time=VirtualTime()).capabilities())
    schedule = textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES)
    found: dict[str, dict[str, float]] = {}
    default: tuple[float, float] | None = None
    for name, given in (("whole clocks", ()), ("with timelines", lines)):
        plans = build(
            profile,
            schedule,
            blocking_power_w=profile.blocking_power_w,
            reserve_pct=RESERVE_PCT,
            switching=Switching(change, split="never"),
            timelines=given,
            verify=True,
        )
        plan = select(plans, Objective())
        default = default or play(plans, default_clocks(plans), works, settings, iterations=ITERATIONS)
        time_s, energy_j = play(plans, policies_of(plan, change), works, settings, iterations=ITERATIONS)
        found[name] = {
            "planned_saving_pct": plan.saving_pct,
            "expected_saving_pct": expected(plan, profile, change).saving_pct,
            "saving_pct": 100.0 * (1.0 - energy_j / default[1]),
            "slower_pct": 100.0 * (time_s / default[0] - 1.0),
        }
    return found


def main() -> int:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="rtx-3080-ti")
    parser.add_argument("--latency-ms", type=float, nargs="+", default=[1.0, 38.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_trace(trace_of(BATCH, STAGES), path)
        for seed in options.seeds:
            settings = SimulatedSettings(gpu=options.gpu, kernels=str(path), noise=NOISE, seed=seed)
            found = of_latencies(settings, [ms / 1e3 for ms in options.latency_ms])
            print(json.dumps({"seed": seed} | found), flush=True)
    return 0


def of_latencies(settings: SimulatedSettings, latencies_s: Sequence[float]) -> dict[str, object]:
    """Measure once, then plan and run with changes of clocks that take so long."""
    trace = trace_of(BATCH, STAGES)
    kernels = measured(settings.gpu, trace, settings.seed)
    costs = launch_costs(smoothed(kernels), trace)
    profile = whole_clocks(settings, works_of(dict.fromkeys(range(STAGES), 1.0), settings))
    results: dict[str, object] = {}
    for latency_s in latencies_s:
        lines = timelines_of(
            costs,
            trace,
            ChangeCost(ClockChange.lasting(latency_s)),
            spared_w=kernels.spared_w,
            temperature_c=kernels.temperature_c,
        )
        changing = replace(settings, switch_latency_s=latency_s)
        results[f"{1e3 * latency_s:g} ms"] = compared(changing, profile, lines)
    return results


if __name__ == "__main__":
    sys.exit(main())
