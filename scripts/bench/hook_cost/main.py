"""What we cost the training thread, per instruction and per iteration, printed as JSON; see README.md.

python scripts/bench/hook_cost/main.py [--iterations 200] [--ranks 4]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from multiprocessing.queues import SimpleQueue
from time import perf_counter_ns, sleep

import torch
import torch.distributed as dist

from perseus_ds.device.simulated import SimulatedGpu, SimulatedSettings
from perseus_ds.engine.clock_requests import ClockRequests
from perseus_ds.engine.conductor import Conductor, Planned, Step
from perseus_ds.engine.council import Council
from perseus_ds.engine.recorder import Recorder
from perseus_ds.engine.stopwatch import HostStopwatch
from perseus_ds.schedule import Instruction, textbook

BAR_US = 20.0
STAGES, MICROBATCHES = 4, 8
CLOCKS_MHZ = (1410, 1305, 1200)  # every computation asks for another clock, up and down: the worst plan
NUMBERS = (0.0, 0.0, 1.0, 0.0)


def instructions() -> tuple[Instruction, ...]:
    """Return one iteration of a middle stage."""
    return textbook("1f1b", stages=STAGES, microbatches=MICROBATCHES).orders[1]


def per_instruction_us(iterations: int, *, pause_s: float) -> list[float]:
    """Time ``before`` and ``after`` as the session calls them; the pause stands for the computation."""
    gpu = SimulatedGpu(SimulatedSettings())
    requests = ClockRequests(gpu)
    stopwatch = HostStopwatch(gpu)
    conductor = Conductor(requests, gpu.now_s, event=stopwatch.event)
    recorder = Recorder(stopwatch)
    order = instructions()
    computations = sum(i.kind.is_computation for i in order)
    steps = tuple(Step(CLOCKS_MHZ[place % len(CLOCKS_MHZ)], 0.4) for place in range(computations))
    score = Planned(steps, gpu.capabilities().switch_latency_s)
    found = []
    for _ in range(iterations):
        recorder.begin()
        conductor.play(score)
        for instruction in order:
            began = perf_counter_ns()
            conductor.before(instruction.kind)
            recorder.started(instruction.kind)
            between = perf_counter_ns()
            if instruction.kind.is_computation:
                sleep(pause_s)
            resumed = perf_counter_ns()
            recorder.ended()
            conductor.after(instruction.kind)
            found.append((perf_counter_ns() - resumed + between - began) / 1e3)
        recorder.finish()
        recorder.passed()
    requests.close()
    gpu.close()
    return found


def council_rank(
    rank: int, ranks: int, rendezvous: str, iterations: int, answers: SimpleQueue[float]
) -> None:
    """Post and collect once per iteration, as the session does, and tell rank 0's median cost."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    council = Council()
    found = []
    for _ in range(iterations):
        began = perf_counter_ns()
        council.collect()
        council.post(NUMBERS)
        found.append((perf_counter_ns() - began) / 1e3)
        sleep(0.01)  # an iteration of training: the exchange happens meanwhile
    dist.barrier()
    if rank == 0:
        answers.put(statistics.median(found))
    os._exit(0)


def per_iteration_us(iterations: int, ranks: int) -> float:
    """Median cost of the exchange on the training thread."""
    context = multiprocessing.get_context("fork")
    answers: SimpleQueue[float] = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, f"file://{folder}/rendezvous", iterations, answers)
        processes = [context.Process(target=council_rank, args=(rank, *arguments)) for rank in range(ranks)]
        for process in processes:
            process.start()
        median_us = answers.get()
        for process in processes:
            process.join()
    return median_us


def main() -> int:
    """Measure, print, and say by the exit code whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    exchange_us = per_iteration_us(options.iterations, options.ranks)
    each_us = per_instruction_us(options.iterations, pause_s=1e-3)
    mean_us = statistics.fmean(each_us)
    found = {
        "instructions": len(each_us),
        "instruction_us_mean": round(mean_us, 2),
        "instruction_us_median": round(statistics.median(each_us), 2),
        "instruction_us_p99": round(statistics.quantiles(each_us, n=100)[98], 2),
        "bar_us": BAR_US,
        "met": mean_us <= BAR_US,
        "exchange_us_per_iteration": round(exchange_us, 1),
        "ranks": options.ranks,
        "instructions_per_iteration": len(instructions()),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }
    print(json.dumps(found, indent=1))
    return 0 if found["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
