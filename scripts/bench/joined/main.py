"""Timelines of kernels in a pipeline: planned and run, beside whole clocks.

Run: ``python scripts/bench/joined/main.py [--gpu rtx-3080-ti] [--latency-ms 1 38]``. About four CPU minutes;
everything is simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from players import default_clocks, play, policies_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
from gpt3_xl import trace_of

from perseus_ds.config import Objective
from perseus_ds.device import ClockChange, SimulatedGpu, SimulatedSettings
from perseus_ds.device.simulated import VirtualTime
from perseus_ds.kernels import KernelProfile, KernelTrace, write_trace
from perseus_ds.kernels.choose import launch_costs, smoothed
from perseus_ds.kernels.measure import WindowPatience
from perseus_ds.kernels.measure_trace import measure_trace
from perseus_ds.kernels.segment import ChangeCost, timelines_of
from perseus_ds.kernels.simulated_replay import simulated_replay
from perseus_ds.plan import build, expected, select
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.timelines import InstructionTimelines
from perseus_ds.profile import Point, Profile
from perseus_ds.runtime.emulation import StageWork, works_of
from perseus_ds.schedule import Kind, textbook

STAGES, MICROBATCHES, BATCH, ITERATIONS = 4, 8, 16, 60
CLOCKS, LOWEST_SHARE = 8, 0.45
NOISE, RESERVE_PCT = 0.005, 1.0
WARM_S, LOOKS = 1800.0, 20
BUBBLE = (STAGES - 1) / MICROBATCHES
"""Seconds of waiting for each of work, in 1F1B."""


def measured(gpu: str, trace: KernelTrace) -> KernelProfile:
    """Measure the kernels as the command does."""
    device = SimulatedGpu(
        SimulatedSettings(gpu=gpu, noise=NOISE, counter_noise=NOISE / 2), time=VirtualTime()
    )
    patience = WindowPatience(window_s=0.5, windows=2)
    return smoothed(
        measure_trace(device, trace, lambda kernel: simulated_replay(device, kernel), patience=patience)
    )


def whole_clocks(settings: SimulatedSettings, works: dict[int, StageWork]) -> Profile:
    """What instructions and waits take at some core clocks, as a sweep finds them: hot."""
    model = SimulatedGpu(settings, time=VirtualTime()).model
    grid = [clock for clock in model.clocks_mhz if clock >= LOWEST_SHARE * model.max_clock_mhz]
    clocks = [grid[round(place * (len(grid) - 1) / (CLOCKS - 1))] for place in range(CLOCKS)]
    points: dict[tuple[int, Kind], list[Point]] = defaultdict(list)
    waiting_w = {}
    for clock in clocks:
        for stage, work in works.items():
            spent, waiting_w[clock] = at_clock(settings, work, clock)
            for kind, (time_s, energy_j) in spent.items():
                points[stage, kind].append(Point(clock, time_s, energy_j))
    rows = {key: tuple(found) for key, found in points.items()}
    return Profile(rows, blocking_power_w=waiting_w[clocks[0]], blocking_w=waiting_w)


def at_clock(
    settings: SimulatedSettings, work: StageWork, clock_mhz: int
) -> tuple[dict[Kind, tuple[float, float]], float]:
    """Time and energy of a forward and a backward, and the power of waiting, after half an hour of them."""
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
    return mean, fmean(watts for _, watts in looks)


def compared(
    settings: SimulatedSettings, profile: Profile, lines: tuple[InstructionTimelines, ...]
) -> dict[str, dict[str, float]]:
    """Plan without and with timelines, and run both beside default clocks."""
    assert settings.kernels is not None
    assert profile.blocking_power_w is not None
    works = works_of(dict.fromkeys(range(STAGES), 1.0), settings)
    change = ClockChange.of(SimulatedGpu(settings, time=VirtualTime()).capabilities())
    schedule = textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES)
    found = {}
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
        default_s, default_j = play(plans, default_clocks(plans), works, settings, iterations=ITERATIONS)
        time_s, energy_j = play(plans, policies_of(plan, change), works, settings, iterations=ITERATIONS)
        found[name] = {
            "planned_saving_pct": plan.saving_pct,
            "expected_saving_pct": expected(plan, profile, change).saving_pct,
            "saving_pct": 100.0 * (1.0 - energy_j / default_j),
            "slower_pct": 100.0 * (time_s / default_s - 1.0),
        }
    return found


def main() -> int:
    """Print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="rtx-3080-ti")
    parser.add_argument("--latency-ms", type=float, nargs="+", default=[1.0, 38.0])
    options = parser.parse_args()
    trace = trace_of(BATCH, STAGES)
    kernels = measured(options.gpu, trace)
    costs = launch_costs(kernels, trace)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_trace(trace, path)
        for latency_ms in options.latency_ms:
            latency_s = latency_ms / 1e3
            settings = SimulatedSettings(
                gpu=options.gpu, kernels=str(path), noise=NOISE, switch_latency_s=latency_s
            )
            works = works_of(dict.fromkeys(range(STAGES), 1.0), settings)
            profile = whole_clocks(settings, works)
            change = ChangeCost(ClockChange.lasting(latency_s))
            lines = timelines_of(costs, trace, change, spared_w=kernels.spared_w)
            results[f"{latency_ms:g} ms"] = compared(settings, profile, lines)
    print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
