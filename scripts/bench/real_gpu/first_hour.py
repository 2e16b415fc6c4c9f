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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median

import numpy as np
import torch

from perseus_ds.device.gpu import DeviceRequest, EventReason, Gpu
from perseus_ds.device.nvml import NvmlGpu
from perseus_ds.errors import DeviceError, DeviceUnavailableError
from perseus_ds.runtime.cuda_events import CudaEvent, TorchCuda, enter_thread
from perseus_ds.runtime.cuda_timer import CudaStopwatch
from perseus_ds.runtime.recorder import Recorder
from perseus_ds.runtime.threads import HostThreads
from perseus_ds.schedule import Kind

_SIDE = 8192
_PICKLED = 200_000


class Bench:
    """The machine under the checks: a GPU to load and to read, a host to keep busy."""

    def __init__(self, gpu: Gpu) -> None:
        self.cuda = TorchCuda()
        self.gpu = gpu
        self.threads = HostThreads()
        self._factor = torch.rand(_SIDE, _SIDE, device="cuda", dtype=torch.bfloat16)
        self._product = torch.empty_like(self._factor)
        self._content = list(range(_PICKLED))
        self._each = {1.0: self._times(self._multiply), 0.5: self._times(self._copy)}

    def launch(self, share: float) -> None:
        """Multiply matrices, or copy one."""
        if share > 0:
            act = self._multiply if share >= 1.0 else self._copy
            for _ in range(self._each[1.0 if share >= 1.0 else 0.5]):
                act()

    def synchronize(self) -> None:
        """Wait for the current device."""
        torch.cuda.synchronize()

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

    def keep_lock(self) -> None:
        """Pickle a list, some milliseconds."""
        pickle.dumps(self._content)

    def thread_cpu_s(self) -> float:
        """Ask the operating system."""
        return time.thread_time()

    def contexts(self) -> int:
        """Count devices on which torch finds one."""
        return sum(map(_has_context, range(torch.cuda.device_count())))

    def versions(self) -> dict[str, str]:
        """Name what ran."""
        runtime = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        return {"torch": torch.__version__, "runtime": runtime, "python": platform.python_version()}

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


class Verdict(Enum):
    """What came of a check."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: its number, what it asks, the bar, the figures (units in their names), and what to do."""

    number: int
    asks: str
    bar: str
    verdict: Verdict
    figures: Figures
    remedy: str = ""

    def lines(self) -> Iterator[str]:
        """Put it in words."""
        yield f"{self.number:>2} {self.verdict.value:<12} {self.asks} ({self.bar})"
        for name, value in self.figures.items():
            yield f"      {name} = {value:.6g}" if isinstance(value, float) else f"      {name} = {value}"
        if self.verdict is not Verdict.PASSES and self.remedy:
            yield f"      what to do: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and of what machine."""

    machine: Figures
    findings: tuple[CheckResult, ...]
    took_s: float

    @property
    def text(self) -> str:
        """The whole report, for people."""
        lines = ["the first hour of a GPU: reads only, no clock was changed", ""]
        lines += [f"{name:<10} {value}" for name, value in self.machine.items()]
        lines += ["", *(line for finding in self.findings for line in finding.lines()), ""]
        count = sum(one.verdict is Verdict.PASSES for one in self.findings)
        lines.append(f"{count} of {len(self.findings)} checks pass; took {self.took_s:.0f} s")
        return "\n".join(lines) + "\n"

    @property
    def json(self) -> str:
        """The same, for programs."""
        findings = [asdict(one) | {"verdict": one.verdict.value} for one in self.findings]
        whole = {"machine": dict(self.machine), "took_s": self.took_s, "findings": findings}
        return json.dumps(whole, indent=1) + "\n"

    def write(self, path: Path) -> Path:
        """Write the text, and the JSON beside it; return where that is."""
        beside = path.with_suffix(".json") if path.suffix != ".json" else path.with_suffix(".figures.json")
        path.write_text(self.text)
        beside.write_text(self.json)
        return beside


_AHEAD = 4
_PAUSE_S = 0.01
_PATIENCE_S = 10.0
_SETTLING_S, _COMPARED_S = 2.0, 10.0
_REPEATS = 40


def found(
    number: int, asks: str, bar: str, figures: Figures, *, passes: bool, remedy: str = ""
) -> CheckResult:
    """Give a check that was made its verdict."""
    return CheckResult(number, asks, bar, Verdict.PASSES if passes else Verdict.FAILS, figures, remedy)


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
    bench.synchronize()


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


@dataclass(frozen=True, slots=True)
class CounterCheck:
    """Energy counter over integrated power, the counter's period, and how far steps lie off an even grid.

    ``uneven_s`` is what 95 % of the steps stay below; reads are some milliseconds apart, and it shows those.
    """

    ratio: float
    period_s: float
    uneven_s: float


def compared(bench: Bench, share: float) -> CounterCheck | None:
    """Compare at a load; None where power is not shown, or the counter stands still."""
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
    return CounterCheck(ratio, period_s, quantile(np.abs(seen_s - grid_s).tolist(), 0.95))


def lateness(bench: Bench, act: Callable[[], None]) -> list[float]:
    """How late a thread wakes from points of the stream (s) while the main thread does something."""
    late_s: list[float] = []
    with stopwatch_of(bench) as stopwatch:
        moments = bench.threads.queue(object)

        def waiting() -> None:
            stopwatch.enter_thread()
            while (moment := moments.get()) != "end":
                at_s = moment.wait()  # type: ignore[attr-defined]  # one of the stopwatch's
                late_s.append(bench.gpu.now_s() - at_s)

        with thread(bench, waiting, moments.put):
            for _ in range(_REPEATS):
                stopwatch.begin()
                bench.launch(1.0)
                stopwatch.mark()
                moments.put(stopwatch.moment())
                act()
                end = stopwatch.end()
                bench.synchronize()
                stopwatch.seconds([end])
    return [max(0.0, one) for one in late_s[_REPEATS // 4 :] if one > -1.0]


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


BUDGET_S = 600.0
_LAST_BEGUN = 0.8
"""Of the budget: later no check begins, since the longest takes a minute."""


def first_hour(
    bench: Bench,
    machine: Figures,
    *,
    progress: Callable[[str], None] = lambda _: None,
    budget_s: float = BUDGET_S,
    checks: Iterable[tuple[int, Check]] = CHECKS,
) -> Report:
    """Make all checks; reads only.

    Cost: some four minutes of one GPU, never more than ``budget_s`` and one check.
    """
    begun_s = bench.threads.now_s()
    findings = []
    for number, check in checks:
        took_s = bench.threads.now_s() - begun_s
        asks = (check.__doc__ or "").splitlines()[0].partition(": ")[2].rstrip(".")
        if took_s > _LAST_BEGUN * budget_s:
            findings.append(_not_measured(number, asks, f"out of time after {took_s:.0f} s"))
            continue
        progress(f"check {number} ({took_s:.0f} s so far): {asks}")
        try:
            findings.append(check(bench))
        except Exception as error:  # noqa: BLE001  # one check that cannot be made keeps no other from it
            findings.append(_not_measured(number, asks, f"{type(error).__name__}: {error}".splitlines()[0]))
        progress(f"  {findings[-1].verdict.value}")
    return Report(machine, tuple(findings), bench.threads.now_s() - begun_s)


def _not_measured(number: int, asks: str, why: str) -> CheckResult:
    remedy = "send this; the other checks stand for themselves"
    return CheckResult(number, asks, "made", Verdict.NOT_MEASURED, {"reason": why}, remedy)


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
        who = gpu.identify()
        machine = {"gpu": who.name, "driver": who.driver, "host": platform.platform()} | bench.versions()
        report = first_hour(bench, machine, progress=lambda line: print(line, file=sys.stderr))
    beside = report.write(options.output)
    print(f"{report.text}written: {options.output} and {beside}")


if __name__ == "__main__":
    main()
