"""The checks, each a function of the bench; numbers and bars as in README.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from statistics import median

import numpy as np

from first_hour.bench import Bench
from first_hour.probes import (
    compared,
    found,
    lateness,
    loaded,
    quantile,
    stopped,
    stopwatch_of,
    thread,
    timed,
)
from first_hour.report import CheckResult
from perseus_ds.device.gpu import EventReason
from perseus_ds.runtime.cuda_events import CudaEvent, enter_thread
from perseus_ds.runtime.recorder import Recorder
from perseus_ds.schedule import Kind

Check = Callable[[Bench], CheckResult]

_LOADS = {"idle": 0.0, "memory": 0.5, "full": 1.0}


def clocks_and_reasons(bench: Bench) -> CheckResult:
    """1: what clock and reasons show idle, and under load."""
    figures: dict[str, float | int | str | None] = {}
    for name, share in _LOADS.items():
        seen = [bench.gpu.achieved() for _ in loaded(bench, 3.0, share)]
        reasons = EventReason.NONE
        for one in seen:
            reasons |= one.event_reasons
        figures[f"{name}_clock_mhz"] = int(median(one.clock_mhz for one in seen))
        figures[f"{name}_reasons"] = (reasons.name or "NONE").lower()
    held = figures["full_clock_mhz"] not in {None, 0}
    return found(1, "clocks and event reasons, idle and under load", "they can be read", figures, passes=held)


def cost_of_reads(bench: Bench) -> CheckResult:
    """2: what a read of the driver takes, and what it does to an allocation beside it."""
    reads_s = [timed(bench, bench.gpu.energy_j) for _ in loaded(bench, 4.0, 1.0)]
    alone_s = [timed(bench, bench.allocate) for _ in range(50)]
    stop = bench.threads.queue(str)

    def reading() -> None:
        while not stopped(stop, 0.02):
            bench.gpu.energy_j()

    with thread(bench, reading, stop.put):
        beside_s = [timed(bench, bench.allocate) for _ in range(50)]
    figures = {
        "energy_read_p50_ms": 1e3 * quantile(reads_s, 0.5),
        "energy_read_p99_ms": 1e3 * quantile(reads_s, 0.99),
        "allocation_alone_ms": 1e3 * median(alone_s),
        "allocation_beside_reads_ms": 1e3 * median(beside_s),
    }
    unharmed = figures["allocation_beside_reads_ms"] <= 1.2 * figures["allocation_alone_ms"] + 0.05
    return found(
        2,
        "what reading the driver costs",
        "p99 of an energy read under 0.5 ms, allocations unchanged",
        figures,
        passes=figures["energy_read_p99_ms"] < 0.5 and unharmed,
        remedy="training does not wait for reads: a thread makes them. Changes of clock may; look for other "
        "tools that read this GPU often (DCGM, exporters); nvidia-smi -pm 1. Virtual machines took 3 ms",
    )


def counter_against_power(bench: Bench) -> CheckResult:
    """3: the energy counter against instantaneous power, integrated, at three loads."""
    figures: dict[str, float | int | str | None] = {}
    passes = True
    for name, share in _LOADS.items():
        counted = compared(bench, share)
        figures[f"{name}_ratio"] = None if counted is None else counted.ratio
        figures[f"{name}_period_ms"] = None if counted is None else 1e3 * counted.period_s
        figures[f"{name}_uneven_ms"] = None if counted is None else 1e3 * counted.uneven_s
        passes &= counted is not None and 0.95 <= counted.ratio <= 1.05 and 0.02 <= counted.period_s <= 0.11
    return found(
        3,
        "the energy counter against the GPU's power, integrated",
        "ratio 0.95 to 1.05, a step every 20 to 110 ms",
        figures,
        passes=passes,
        remedy="above 1.25 it is a module's counter: jobs integrate power instead, and report it",
    )


def waiting_thread(bench: Bench) -> CheckResult:
    """4: what a thread costs that sleeps on events, and whether it makes a context on another GPU."""
    before = bench.contexts()
    events: SimpleQueue[CudaEvent | None] = bench.threads.queue(object)  # type: ignore[arg-type]  # or the end
    device = bench.cuda.current_device()
    cpu_s: list[float] = []

    def waiting() -> None:
        enter_thread(bench.cuda, device)
        while (event := events.get()) is not None:
            event.synchronize()
        cpu_s.append(bench.thread_cpu_s())

    begun_s = bench.threads.now_s()
    with thread(bench, waiting, lambda _: events.put(None)):
        for _ in loaded(bench, 8.0, 1.0):
            event = bench.cuda.event(blocking=True)
            event.record()
            events.put(event)
    share = (cpu_s[0] if cpu_s else math.inf) / (bench.threads.now_s() - begun_s)
    return found(
        4,
        "a thread that sleeps on events",
        "under 5 % of a core, no further context",
        {"share_of_a_core": share, "contexts_before": before, "contexts_after": bench.contexts()},
        passes=share < 0.05 and bench.contexts() == before,
        remedy="send this: the thread of ours that sets clocks works the same way",
    )


def query_behind_synchronize(bench: Bench) -> CheckResult:
    """5: how long another Python thread stands still while an event is asked behind a device-wide wait."""
    event = bench.cuda.event()
    event.record()
    bench.synchronize()
    device = bench.cuda.current_device()
    longest_s = 0.0
    for _ in range(5):

        def synchronizing() -> None:
            bench.cuda.set_device(device)
            bench.synchronize()

        ticks_s: list[float] = []
        stop = bench.threads.queue(str)

        def ticking(ticks_s: list[float] = ticks_s, stop: SimpleQueue[str] = stop) -> None:
            while not stopped(stop, 1e-3):
                ticks_s.append(bench.threads.now_s())

        for _ in range(20):
            bench.launch(1.0)
        with thread(bench, ticking, stop.put), thread(bench, synchronizing, lambda _: None):
            bench.threads.sleep(0.02)
            event.query()
            bench.threads.sleep(0.02)
        longest_s = max([longest_s, *(later - earlier for earlier, later in pairwise(ticks_s))])
    return found(
        5,
        "an event asked while the whole device is waited for",
        "no other thread stands still for more than 20 ms",
        {"longest_gap_ms": 1e3 * longest_s},
        passes=longest_s < 0.02,
        remedy="nothing: threads of ours sleep on events and never ask; a loop of yours should not either",
    )


def capture_beside_us(bench: Bench) -> CheckResult:
    """6: graphs captured while our thread waits and our marks are taken."""
    with stopwatch_of(bench) as stopwatch:
        broken, reason = 0, ""

        def meanwhile() -> None:
            stopwatch.mark()
            bench.threads.sleep(0.03)

        for _ in range(20):
            stopwatch.begin()
            for _ in range(4):
                bench.launch(1.0)
                stopwatch.mark()
            stopwatch.end()
            try:
                bench.capture(meanwhile)
            except RuntimeError as error:
                broken, reason = broken + 1, str(error).splitlines()[0]
    return found(
        6,
        "CUDA graphs captured beside our thread",
        "none of 20 broken",
        {"broken": broken, "reason": reason},
        passes=not broken,
        remedy="send this, and train with mode: off until then if your job captures graphs",
    )


def device_clock(bench: Bench) -> CheckResult:
    """7: the device's clock against the host's."""
    residuals_s: list[float] = []
    with stopwatch_of(bench) as stopwatch:
        begun_s = bench.threads.now_s()
        while bench.threads.now_s() < begun_s + 60.0:
            stopwatch.begin()
            bench.launch(1.0)
            bench.synchronize()
            before_s = bench.gpu.now_s()
            mark = stopwatch.mark()
            bench.synchronize()
            after_s = bench.gpu.now_s()
            end = stopwatch.end()
            bench.synchronize()
            bench.threads.sleep(0.2)
            (at_s, _) = stopwatch.seconds([mark, end])
            residuals_s.append(max(0.0, before_s - at_s, at_s - after_s))
        drift = stopwatch.drift
    settled_s = residuals_s[len(residuals_s) // 4 :]
    worst_s = max(settled_s, default=math.inf)
    return found(
        7,
        "the device's clock against the host's",
        "off by less than 50 us once its drift is known",
        {"drift_ppm": 1e6 * drift, "worst_ms": 1e3 * worst_s, "points": len(settled_s)},
        passes=worst_s < 50e-6,
        remedy="below 1 ms no figure of a job changes. Above: is the host's clock stepped or slewed "
        "(chrony, a virtual machine)? Send this",
    )


def cost_of_marks(bench: Bench) -> CheckResult:
    """8: iterations with marks and without, in turns."""
    instructions, host_s = 32, [0.0]  # 64 of them filled an H100's launch queue: then any call waits
    took_s: dict[bool, list[float]] = {True: [], False: []}

    def iteration(recorder: Recorder | None) -> None:
        if recorder is not None:
            host_s[-1] += timed(bench, recorder.begin)
        for _ in range(instructions):
            if recorder is not None:
                host_s[-1] += timed(bench, lambda: recorder.started(Kind.FORWARD))
            bench.launch(1.0)
            if recorder is not None:
                host_s[-1] += timed(bench, recorder.ended)
        if recorder is not None:
            host_s[-1] += timed(bench, recorder.finish) + timed(bench, recorder.rest)

    with stopwatch_of(bench) as stopwatch:
        recorder = Recorder(stopwatch)
        iteration(recorder)
        bench.synchronize()
        for turn in range(48):
            marked = turn % 4 in {0, 3}  # on, off, off, on: a GPU that warms up counts for both
            host_s.append(0.0)
            begun_s = bench.threads.now_s()
            iteration(recorder if marked else None)
            bench.synchronize()
            took_s[marked].append(bench.threads.now_s() - begun_s)
            recorder.passed()
    pairs = np.array(took_s[True]).reshape(-1, 2).sum(1) / np.array(took_s[False]).reshape(-1, 2).sum(1) - 1.0
    change, error = float(pairs.mean()), float(pairs.std(ddof=1)) / math.sqrt(len(pairs))
    marks = 2 * instructions + 3
    mark_us = 1e6 * median(one for one in host_s[1:] if one) / marks
    return found(
        8,
        "iterations with our marks and without, in turns",
        "not longer by 0.1 % and twice the error, under 15 us of the host for a mark",
        {"change_pct": 1e2 * change, "change_error_pct": 1e2 * error, "mark_us": mark_us, "marks": marks},
        passes=change < 1e-3 + 2.0 * error and mark_us < 15.0,
        remedy="run it again on a quiet machine; if it stays, send this",
    )


def wake_up_latency(bench: Bench) -> CheckResult:
    """10: how late a thread wakes from an event, by what the main thread does."""
    figures: dict[str, float | int | str | None] = {}

    def in_backward() -> None:
        bench.synchronize()

    acts = {
        "waiting": in_backward,
        "python": lambda: bench.run_python(0.03),
        "pickle": bench.keep_lock,
    }
    for name, act in acts.items():
        late_s = lateness(bench, act)
        figures[f"{name}_p50_ms"] = 1e3 * quantile(late_s, 0.5)
        figures[f"{name}_p99_ms"] = 1e3 * quantile(late_s, 0.99)
    worst_ms = max(float(value or 0.0) for name, value in figures.items() if name.startswith("python_p99"))
    return found(
        10,
        "how late a thread wakes, by what the main thread does",
        "p99 at most 8 ms while it runs Python",
        figures,
        passes=worst_ms <= 8.0,
        remedy="changes of clock come as late as this, and the job reports it; fewer busy threads help",
    )


CHECKS: tuple[tuple[int, Check], ...] = (
    (1, clocks_and_reasons),
    (2, cost_of_reads),
    (3, counter_against_power),
    (4, waiting_thread),
    (5, query_behind_synchronize),
    (6, capture_beside_us),
    (7, device_clock),
    (8, cost_of_marks),
    (10, wake_up_latency),
)
"""By number: 9 needs an engine, those after 10 a machine of one's own."""
