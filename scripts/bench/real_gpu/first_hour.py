"""Load the GPU that torch takes for some four minutes and check, by reads alone, what measuring relies on.

python scripts/bench/real_gpu/first_hour.py [-o FILE]

Numbers and bars of the checks as in README.md; no clock is changed.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median

import numpy as np
import torch

from perseus_ds.device.gpu import DeviceRequest, EventReason, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.runtime.cuda_events import RELAXED, CudaEvent, TorchCuda
from perseus_ds.runtime.cuda_timer import CudaStopwatch
from perseus_ds.runtime.recorder import Recorder
from perseus_ds.runtime.threads import HostThreads
from perseus_ds.schedule import Kind

_SIDE = 8192


class Bench:
    """The machine under the checks: a GPU to load and to read, a host to keep busy."""

    def __init__(self, gpu: Gpu) -> None:
        self.cuda = TorchCuda()
        self.gpu = gpu
        self.threads = HostThreads()
        self._factor = torch.rand(_SIDE, _SIDE, device="cuda", dtype=torch.bfloat16)
        self._product = torch.empty_like(self._factor)
        self._each = {1.0: self._times(self._multiply), 0.5: self._times(self._copy)}

    def launch(self, share: float) -> None:
        """Multiply matrices, or copy one."""
        if share > 0:
            act = self._multiply if share >= 1.0 else self._copy
            for _ in range(self._each[1.0 if share >= 1.0 else 0.5]):
                act()

    def allocate(self) -> None:
        """Take 64 MiB past torch's cache."""
        memory = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        del memory
        torch.cuda.empty_cache()

    def capture(self, meanwhile: Callable[[], None]) -> None:
        """Capture one product, in the strictest mode."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="global"):
            self._multiply()
            meanwhile()
        graph.replay()
        torch.cuda.synchronize()

    def run_python(self, for_s: float) -> None:
        """Count."""
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            sum(range(1000))

    def contexts(self) -> int:
        """Count devices on which torch finds one."""
        return sum(map(_has_context, range(torch.cuda.device_count())))

    def _multiply(self) -> None:
        torch.mm(self._factor, self._factor, out=self._product)

    def _copy(self) -> None:
        self._product.copy_(self._factor)

    def _times(self, act: Callable[[], None]) -> int:
        """How often it fits into 10 ms."""
        act()
        torch.cuda.synchronize()
        begun_s = time.monotonic()
        for _ in range(10):
            act()
        torch.cuda.synchronize()
        return max(1, round(0.1 / (time.monotonic() - begun_s)))


def _has_context(index: int) -> bool:
    has = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001  # torch has no other way to ask
    return bool(has(index)) if has else index == torch.cuda.current_device()


def open_bench() -> Bench:
    """Open the current CUDA device, to be read only.

    Raises:
        DeviceError: there is no GPU here, or NVML does not know it.
    """
    if not torch.cuda.is_available():
        raise DeviceUnavailableError(
            "no CUDA device here to check", hint="run it on a machine with a GPU, in the Python that trains"
        )
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    return Bench(NvmlGpu(DeviceRequest("nvml", uuid=f"GPU-{uuid}", lock=False)))


Figures = Mapping[str, float | int | str | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check: the bar, the figures (units in their names), and what to do where it fails.

    ``passes`` is None where it could not be measured.
    """

    bar: str
    figures: Figures
    passes: bool | None
    remedy: str = ""

    def lines(self, asks: str) -> Iterator[str]:
        """Put it in words."""
        verdict = {True: "passes", False: "fails", None: "not measured"}[self.passes]
        yield f"{verdict:<12} {asks} ({self.bar})"
        for name, value in self.figures.items():
            yield f"      {name} = {value:.6g}" if isinstance(value, float) else f"      {name} = {value}"
        if not self.passes and self.remedy:
            yield f"      what to do: {self.remedy}"


def report_text(machine: Figures, findings: Mapping[str, Finding], took_s: float) -> str:
    """Write the whole report for people."""
    lines = ["the first hour of a GPU: reads only, no clock was changed", ""]
    lines += [f"{name:<10} {value}" for name, value in machine.items()]
    lines += ["", *(line for asks, one in findings.items() for line in one.lines(asks)), ""]
    count = sum(one.passes is True for one in findings.values())
    return "\n".join([*lines, f"{count} of {len(findings)} checks pass; took {took_s:.0f} s", ""])


_AHEAD = 4
_PAUSE_S = 0.01
_PATIENCE_S = 10.0
_SETTLING_S, _COMPARED_S = 2.0, 10.0
_REPEATS = 40


def timed(bench: Bench, call: Callable[[], object]) -> float:
    """How long a call takes."""
    begun_s = bench.threads.now_s()
    call()
    return bench.threads.now_s() - begun_s


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile; infinite where there is nothing."""
    return float(np.quantile(values, share)) if len(values) else float("inf")


def loaded(bench: Bench, for_s: float, share: float) -> Iterator[None]:
    """Keep the GPU at a load for so long; yield about every 10 ms."""
    until_s = bench.threads.now_s() + for_s
    under_way: deque[CudaEvent] = deque()
    while bench.threads.now_s() < until_s:
        if not share:
            bench.threads.sleep(_PAUSE_S)
        else:
            bench.launch(share)
            event = bench.cuda.event(blocking=True)
            event.record()
            under_way.append(event)
            if len(under_way) > _AHEAD:
                under_way.popleft().synchronize()
        yield
    torch.cuda.synchronize()


def stopped(stop: SimpleQueue[str], pause_s: float) -> bool:
    """Pause; whether the end was asked for."""
    try:
        stop.get(timeout=pause_s)
    except Empty:
        return False
    return True


@contextmanager
def thread(bench: Bench, run: Callable[[], None], end: Callable[[str], None]) -> Iterator[None]:
    """Have something run beside, until ``end`` was called; it is not waited for long."""
    beside = bench.threads.start(run, name="perseus-check")
    try:
        yield
    finally:
        end("end")
        beside.join(_PATIENCE_S)


@contextmanager
def stopwatch_of(bench: Bench) -> Iterator[CudaStopwatch]:
    """Take marks as in a job."""
    stopwatch = CudaStopwatch(bench.gpu, cuda=bench.cuda, threads=bench.threads)
    try:
        yield stopwatch
    finally:
        stopwatch.close()


def compared(bench: Bench, share: float) -> tuple[float, float, float] | None:
    """Return the counter over integrated power at a load, its period, and how uneven its steps are (s).

    95 % of the steps lie closer to an even grid than the last, which shows the milliseconds between reads.
    None where power is not shown, or the counter stands still.
    """
    for _ in loaded(bench, _SETTLING_S, share):
        pass
    spent_j, power, last_j = 0.0, None, None
    steps: list[tuple[float, float, float]] = []
    for _ in loaded(bench, _COMPARED_S, share):
        power_w, now_s = bench.gpu.power_w(), bench.gpu.now_s()
        energy_j = bench.gpu.energy_j()
        if power_w is None:
            return None
        if power is not None:
            spent_j += 0.5 * (power_w + power[1]) * (now_s - power[0])
        power = now_s, power_w
        if last_j is not None and energy_j != last_j:
            steps.append((now_s, energy_j, spent_j))
        last_j = energy_j
    if len(steps) < 3 or steps[-1][2] <= steps[0][2]:  # two ends and a step between
        return None
    ratio = (steps[-1][1] - steps[0][1]) / (steps[-1][2] - steps[0][2])
    period_s = (steps[-1][0] - steps[0][0]) / (len(steps) - 1)
    seen_s = np.array([at_s for at_s, _, _ in steps])
    places = np.rint((seen_s - seen_s[0]) / period_s)
    grid_s = np.polyval(np.polyfit(places, seen_s, 1), places)
    return ratio, period_s, quantile(np.abs(seen_s - grid_s).tolist(), 0.95)


def lateness(bench: Bench, act: Callable[[], object]) -> list[float]:
    """How late a thread wakes from points of the stream (s) while the main thread does something."""
    late_s: list[float] = []
    with stopwatch_of(bench) as stopwatch:
        moments = bench.threads.queue(object)

        def waiting() -> None:
            stopwatch.enter_thread()
            while (moment := moments.get()) != "end":
                at_s = moment()  # type: ignore[operator]  # one of the stopwatch's
                late_s.append(bench.gpu.now_s() - at_s)

        with thread(bench, waiting, moments.put):
            for _ in range(_REPEATS):
                stopwatch.begin()
                bench.launch(1.0)
                stopwatch.mark()
                moments.put(stopwatch.moment())
                act()
                end = stopwatch.end()
                torch.cuda.synchronize()
                stopwatch.seconds([end])
    return [max(0.0, one) for one in late_s[_REPEATS // 4 :] if one > -1.0]


Check = Callable[[Bench], Finding]

_LOADS = {"idle": 0.0, "memory": 0.5, "full": 1.0}


def clocks_and_reasons(bench: Bench) -> Finding:
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
    return Finding("they can be read", figures, passes=held)


def cost_of_reads(bench: Bench) -> Finding:
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
    return Finding(
        "p99 of an energy read under 0.5 ms, allocations unchanged",
        figures,
        passes=figures["energy_read_p99_ms"] < 0.5 and unharmed,
        remedy="training does not wait for reads: a thread makes them. Changes of clock may; look for other "
        "tools that read this GPU often (DCGM, exporters); nvidia-smi -pm 1. Virtual machines took 3 ms",
    )


def counter_against_power(bench: Bench) -> Finding:
    """3: the energy counter against instantaneous power, integrated, at three loads."""
    figures: dict[str, float | int | str | None] = {}
    passes = True
    for name, share in _LOADS.items():
        ratio, period_s, uneven_s = compared(bench, share) or (0.0, 0.0, 0.0)
        figures |= {f"{name}_ratio": ratio, f"{name}_period_ms": 1e3 * period_s}
        figures[f"{name}_uneven_ms"] = 1e3 * uneven_s
        passes &= 0.95 <= ratio <= 1.05 and 0.02 <= period_s <= 0.11
    return Finding(
        "ratio 0.95 to 1.05, a step every 20 to 110 ms",
        figures,
        passes=passes,
        remedy="above 1.25 it is a module's counter: jobs integrate power instead, and report it",
    )


def waiting_thread(bench: Bench) -> Finding:
    """4: what a thread costs that sleeps on events, and whether it makes a context on another GPU."""
    before = bench.contexts()
    events: SimpleQueue[CudaEvent | None] = bench.threads.queue(object)  # type: ignore[arg-type]  # or the end
    device = bench.cuda.current_device()
    cpu_s: list[float] = []

    def waiting() -> None:
        bench.cuda.set_device(device)  # first: another call would make a context on GPU 0
        bench.cuda.exchange_capture_mode(RELAXED)
        while (event := events.get()) is not None:
            event.synchronize()
        cpu_s.append(time.thread_time())

    begun_s = bench.threads.now_s()
    with thread(bench, waiting, lambda _: events.put(None)):
        for _ in loaded(bench, 8.0, 1.0):
            event = bench.cuda.event(blocking=True)
            event.record()
            events.put(event)
    share = (cpu_s[0] if cpu_s else math.inf) / (bench.threads.now_s() - begun_s)
    return Finding(
        "under 5 % of a core, no further context",
        {"share_of_a_core": share, "contexts_before": before, "contexts_after": bench.contexts()},
        passes=share < 0.05 and bench.contexts() == before,
        remedy="send this: the thread of ours that sets clocks works the same way",
    )


def capture_beside_us(bench: Bench) -> Finding:
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
    return Finding(
        "none of 20 broken",
        {"broken": broken, "reason": reason},
        passes=not broken,
        remedy="send this, and train with mode: off until then if your job captures graphs",
    )


def device_clock(bench: Bench) -> Finding:
    """7: the device's clock against the host's."""
    residuals_s: list[float] = []
    with stopwatch_of(bench) as stopwatch:
        begun_s = bench.threads.now_s()
        while bench.threads.now_s() < begun_s + 60.0:
            stopwatch.begin()
            bench.launch(1.0)
            torch.cuda.synchronize()
            before_s = bench.gpu.now_s()
            mark = stopwatch.mark()
            torch.cuda.synchronize()
            after_s = bench.gpu.now_s()
            end = stopwatch.end()
            torch.cuda.synchronize()
            bench.threads.sleep(0.2)
            (at_s, _) = stopwatch.seconds([mark, end])
            residuals_s.append(max(0.0, before_s - at_s, at_s - after_s))
        drift = stopwatch.drift
    settled_s = residuals_s[len(residuals_s) // 4 :]
    worst_s = max(settled_s, default=math.inf)
    return Finding(
        "off by less than 50 us once its drift is known",
        {"drift_ppm": 1e6 * drift, "worst_ms": 1e3 * worst_s, "points": len(settled_s)},
        passes=worst_s < 50e-6,
        remedy="below 1 ms no figure of a job changes. Above: is the host's clock stepped or slewed "
        "(chrony, a virtual machine)? Send this",
    )


def cost_of_marks(bench: Bench) -> Finding:
    """8: iterations with marks and without, in turns."""
    instructions, host_s = 32, [0.0]  # 64 of them filled an H100's launch queue: then any call waits
    took_s: dict[bool, list[float]] = {True: [], False: []}

    def iteration(recorder: Recorder | None) -> None:
        if recorder is not None:
            host_s[-1] += timed(bench, recorder.begin)
        for _ in range(instructions):
            if recorder is not None:
                host_s[-1] += timed(bench, lambda: recorder.mark_start(Kind.FORWARD))
            bench.launch(1.0)
            if recorder is not None:
                host_s[-1] += timed(bench, recorder.mark_end)
        if recorder is not None:
            host_s[-1] += timed(bench, recorder.finish) + timed(bench, recorder.host_s)

    with stopwatch_of(bench) as stopwatch:
        recorder = Recorder(stopwatch)
        iteration(recorder)
        torch.cuda.synchronize()
        for turn in range(48):
            marked = turn % 4 in {0, 3}  # on, off, off, on: a GPU that warms up counts for both
            host_s.append(0.0)
            begun_s = bench.threads.now_s()
            iteration(recorder if marked else None)
            torch.cuda.synchronize()
            took_s[marked].append(bench.threads.now_s() - begun_s)
            recorder.take_passed()
    pairs = np.array(took_s[True]).reshape(-1, 2).sum(1) / np.array(took_s[False]).reshape(-1, 2).sum(1) - 1.0
    change, error = float(pairs.mean()), float(pairs.std(ddof=1)) / math.sqrt(len(pairs))
    marks = 2 * instructions + 3
    mark_us = 1e6 * median(one for one in host_s[1:] if one) / marks
    return Finding(
        "not longer by 0.1 % and twice the error, under 15 us of the host for a mark",
        {"change_pct": 1e2 * change, "change_error_pct": 1e2 * error, "mark_us": mark_us, "marks": marks},
        passes=change < 1e-3 + 2.0 * error and mark_us < 15.0,
        remedy="run it again on a quiet machine; if it stays, send this",
    )


def wake_up_latency(bench: Bench) -> Finding:
    """10: how late a thread wakes from an event, by what the main thread does."""
    figures: dict[str, float | int | str | None] = {}

    content = list(range(200_000))
    acts: dict[str, Callable[[], object]] = {
        "waiting": torch.cuda.synchronize,
        "python": lambda: bench.run_python(0.03),
        "pickle": lambda: pickle.dumps(content),
    }
    for name, act in acts.items():
        late_s = lateness(bench, act)
        figures[f"{name}_p50_ms"] = 1e3 * quantile(late_s, 0.5)
        figures[f"{name}_p99_ms"] = 1e3 * quantile(late_s, 0.99)
    worst_ms = max(float(value or 0.0) for name, value in figures.items() if name.startswith("python_p99"))
    return Finding(
        "p99 at most 8 ms while it runs Python",
        figures,
        passes=worst_ms <= 8.0,
        remedy="changes of clock come as late as this, and the job reports it; fewer busy threads help",
    )


CHECKS: tuple[Check, ...] = (
    clocks_and_reasons,
    cost_of_reads,
    counter_against_power,
    waiting_thread,
    capture_beside_us,
    device_clock,
    cost_of_marks,
    wake_up_latency,
)


def first_hour(bench: Bench) -> dict[str, Finding]:
    """Make all checks, by reads alone: some four minutes of one GPU."""
    findings = {}
    for check in CHECKS:
        asks = (check.__doc__ or "").splitlines()[0].rstrip(".")
        print(asks, file=sys.stderr)
        try:
            findings[asks] = check(bench)
        except Exception as error:  # noqa: BLE001  # one check that cannot be made keeps no other from it
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            remedy = "send this; the other checks stand for themselves"
            findings[asks] = Finding("made", {"reason": reason}, None, remedy)
    return findings


def main() -> None:
    """Check, write the report and its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("first-hour.txt"))
    options = parser.parse_args()
    try:
        bench = open_bench()
    except DeviceError as error:
        sys.exit(f"{error.message} ({error.hint})" if error.hint else error.message)
    with bench.gpu as gpu:
        begun_s = time.monotonic()
        who = gpu.identify()
        machine = {"gpu": who.name, "driver": who.driver, "host": platform.platform()}
        machine |= {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
        findings = first_hour(bench)
        took_s = time.monotonic() - begun_s
    text, beside = report_text(machine, findings, took_s), options.output.with_suffix(".figures.json")
    options.output.write_text(text)
    content = {
        "machine": machine,
        "took_s": took_s,
        "findings": {asks: asdict(one) for asks, one in findings.items()},
    }
    beside.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{text}written: {options.output} and {beside}")


if __name__ == "__main__":
    main()
