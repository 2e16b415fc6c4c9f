"""What several checks share: a load that is kept up, a thread beside, times of calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import numpy as np

from first_hour.bench import Bench
from first_hour.report import CheckResult, Figures, Verdict
from perseus_ds.runtime.cuda_events import CudaEvent
from perseus_ds.runtime.cuda_timer import CudaStopwatch

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
    if len(steps) < 3 or steps[-1][2] <= steps[0][2]:  # noqa: PLR2004  # two ends and a step between
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
