"""What feedback adds to the training thread's part of an instruction, printed as JSON; see README.md.

python scripts/bench/hook_cost/with_feedback.py [--iterations 150]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from time import sleep, thread_time_ns

from perseus_ds.device import ClockChange
from perseus_ds.device.simulated import SimulatedGpu, SimulatedSettings
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.feedback.made import with_feedback
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.runtime.control.clock_requests import ClockRequests
from perseus_ds.runtime.control.clock_schedules import ClockSchedules
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy, ClockSequencer
from perseus_ds.runtime.measure.recorder import Recorder
from perseus_ds.runtime.measure.stopwatch import HostStopwatch
from perseus_ds.schedule import Order, textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, gpt3_profile

BAR = 1.1
RANK, STAGES, MICROBATCHES, NOISE = 3, 8, 12, 0.02
CHANGE = ClockChange(0.005, 0.005, 0.005)
PAUSE_S = 5e-4
"""Stands for the computation, so that the clock thread does its work as in a job."""


def corrected_plans() -> PlanSet:
    """GPT-3 on eight simulated stages, 2 % noise: plans, and the feedback of the first."""
    profile = gpt3_profile()
    points = {
        key: tuple(replace(point, time_sd_s=NOISE * point.time_s) for point in own)
        for key, own in profile.points.items()
    }
    profile = replace(profile, points=points)
    plans = build(
        profile,
        textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES),
        blocking_power_w=BLOCKING_POWER_W,
        reserve_pct="auto",
        switching=Switching(change=CHANGE),
    )
    return with_feedback(plans, profile)


class Hooks:
    """What a session calls around each instruction, of one clock policy, on a GPU of its own."""

    def __init__(self, policy: ClockPolicy, order: Order) -> None:
        self._gpu = SimulatedGpu(SimulatedSettings())
        self._requests = ClockRequests(self._gpu)
        stopwatch = HostStopwatch(self._gpu)
        self._sequencer = ClockSequencer(self._requests, self._gpu.now_s, moment=stopwatch.moment)
        self._recorder = Recorder(stopwatch)
        self._policy, self._order = policy, order

    def iteration_us(self) -> float:
        """CPU time of the training thread for an instruction's hooks: mean over one iteration."""
        self._recorder.begin()
        self._sequencer.begin(self._policy)
        spent_ns = sum(self._instruction_ns(at) for at in range(len(self._order)))
        self._recorder.finish()
        self._recorder.passed()
        return (spent_ns / len(self._order) - _clock_ns()) / 1e3

    def _instruction_ns(self, at: int) -> int:
        kind = self._order[at].kind
        began = thread_time_ns()
        self._sequencer.before(kind)
        self._recorder.started(kind)
        between = thread_time_ns()
        if kind.is_computation:
            sleep(PAUSE_S)
        resumed = thread_time_ns()
        self._recorder.ended()
        self._sequencer.after(kind)
        return thread_time_ns() - resumed + between - began

    def close(self) -> None:
        """End the clock thread."""
        self._requests.close()
        self._gpu.close()


def _clock_ns() -> float:
    """What reading the clock four times adds."""
    took = []
    for _ in range(50):
        began = thread_time_ns()
        took.append(thread_time_ns() - began)
    return 2.0 * statistics.median(took)


def main() -> int:
    """Measure in turns and print; the exit code states whether the ratio is within its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=150)
    given = parser.parse_args()
    plans = corrected_plans()
    assert plans.feedback is not None
    order, found = plans.schedule.orders[RANK], dict[str, list[float]]()
    hooks = {
        name: Hooks(
            ClockSchedules(plans, pipeline_rank=RANK, change=CHANGE, feedback=name == "with").of(
                plans.feedback.plan
            ),
            order,
        )
        for name in ("without", "with")
    }
    for _ in range(given.iterations):
        for name, one in hooks.items():
            found.setdefault(name, []).append(one.iteration_us())
    for one in hooks.values():
        one.close()
    medians = {name: round(statistics.median(each), 2) for name, each in found.items()}
    ratio = medians["with"] / medians["without"]
    print(
        json.dumps(
            {
                "instructions": len(order),
                "instruction_cpu_us": medians,
                "ratio": round(ratio, 3),
                "bar": BAR,
                "met": ratio <= BAR,
            },
            indent=1,
        )
    )
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
