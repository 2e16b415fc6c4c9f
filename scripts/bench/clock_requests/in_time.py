"""How late do clocks stand in a driver with 10 ms calls, while the main thread never pauses? On a fake GPU.

    python scripts/bench/clock_requests/in_time.py [--seconds 20] [--json FILE]

The host's own lateness is measured beside. One process does nothing but sleep to the same moments; one thread
does so beside a main thread in pure Python. No line of ours is in either.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "fake_nvml")]

import fake_nvml  # noqa: E402 - the line above says where it is
from fake_nvml import FakeNvml  # noqa: E402

from perseus_ds.device import DeviceRequest, Gpu  # noqa: E402
from perseus_ds.device.choose import choose  # noqa: E402
from perseus_ds.device.clock_agenda import LATE_S  # noqa: E402
from perseus_ds.device.read_through import ReadThroughGpu  # noqa: E402
from perseus_ds.runtime.control.clock_requests import Ask, ClockRequests, Request  # noqa: E402

CALL_US = 10_000
POINT_S = 0.05
BUSY_MS = 2.0
"""A process that only sleeps is later than this where the host has no core for it: nothing can be judged."""
BARS = {"guard_late_p99_ms": 8.0, "guard_threads_cpu_pct": 2.0}


def measure(node: FakeNvml, seconds: float) -> dict[str, float]:
    """All ways, one after the other; every one with a control of its own beside it."""
    found = interpreter_alone(seconds)
    node.state.gpu[0].call_us = CALL_US
    for way in ("guard", "thread"):
        with choose(DeviceRequest("nvml")).gpu as gpu:
            gpu.expect(call_s=CALL_US / 1e6, latency_s=0.04)
            found |= stored(gpu if way == "guard" else _InProcess(gpu), node, way, seconds)
    node.state.gpu[0].call_us = 0
    return found


def stored(gpu: Gpu, node: FakeNvml, way: str, seconds: float) -> dict[str, float]:
    """Compare when clocks stand in the driver with when they were wanted there, less the call.

    Half of the requests are due at a point of the stream, for which a thread has to wake. Half are due some
    milliseconds after one: those are with the guard ``ahead`` of their moment.

    Units: milliseconds; ``threads_cpu_pct`` is what all threads but the main one take of a core.
    """
    sender = ClockRequests(gpu)
    watched = _started(_WATCH, str(ROOT / "tests" / "fake_nvml"), str(node.path), str(seconds + 2.0))
    time.sleep(1.0)
    clocks_mhz, wanted, begin_s = gpu.capabilities().clocks_mhz, [], time.monotonic() + 0.3
    for place in range(int(seconds / POINT_S)):
        at_s = begin_s + place * POINT_S
        now_mhz, later_mhz = clocks_mhz[2 * place % 40], clocks_mhz[(2 * place + 1) % 40]
        sender.put(Request((Ask(now_mhz), Ask(later_mhz, POINT_S / 2)), at_s, _Reached(at_s)))
        wanted += [(at_s, now_mhz), (at_s + POINT_S / 2, later_mhz)]
    host = _sleeping([at_s for at_s, _ in wanted])
    beside_pct = busy_until(begin_s + seconds)
    time.sleep(0.2)
    gpu.in_control()
    seen = [line.split() for line in watched.communicate()[0].splitlines()]
    late = lateness_ms(wanted, [(float(at), int(mhz)) for at, mhz in seen])
    host_ms = [float(line) for line in host.communicate()[0].splitlines()]
    counts = sender.counts
    sender.close()
    late_ms = list(late.values())
    return {
        **_figures(way, late_ms),
        **_figures(f"{way}_at_a_point", [ms for place, ms in late.items() if place % 2 == 0]),
        **_figures(f"{way}_ahead", [ms for place, ms in late.items() if place % 2]),
        **_figures(f"{way}_host", host_ms),
        f"{way}_late_beyond_host_p99_ms": _p99([ms - host_ms[place] for place, ms in late.items()]),
        f"{way}_stored_share": len(late_ms) / len(wanted),
        f"{way}_late_share": sum(ms > 1e3 * LATE_S for ms in late_ms) / len(late_ms),
        f"{way}_reported_late_share": counts.late / max(counts.changes, 1),
        f"{way}_reported_longest_ms": 1e3 * counts.longest_late_s,
        f"{way}_threads_cpu_pct": beside_pct,
    }


def interpreter_alone(seconds: float) -> dict[str, float]:
    """How late a thread wakes that only sleeps, beside a main thread in pure Python: no line of ours runs."""
    begin_s = time.monotonic() + 0.3
    due_s = [begin_s + place * POINT_S for place in range(int(seconds / POINT_S))]
    late_ms: list[float] = []

    def sleeps() -> None:
        for at_s in due_s:
            time.sleep(max(0.0, at_s - time.monotonic()))
            late_ms.append(1e3 * (time.monotonic() - at_s))

    thread = threading.Thread(target=sleeps)
    thread.start()
    host = _sleeping(due_s)
    busy_until(begin_s + seconds)
    thread.join()
    host_ms = [float(line) for line in host.communicate()[0].splitlines()]
    return _figures("interpreter", late_ms) | _figures("interpreter_host", host_ms)


def busy_until(end_s: float) -> float:
    """Run Python without a pause; return what other threads take of a core meanwhile, in percent."""
    process_s, main_s, began_s = time.process_time(), time.thread_time(), time.monotonic()
    while time.monotonic() < end_s:
        pass
    beside_s = time.process_time() - process_s - (time.thread_time() - main_s)
    return 100.0 * beside_s / (time.monotonic() - began_s)


def lateness_ms(
    wanted: Sequence[tuple[float, int]], stored_at: Sequence[tuple[float, int]]
) -> dict[int, float]:
    """How much later than a call after its moment every clock stood in the driver, by its place."""
    late_ms, next_one = {}, 0
    for place, (at_s, clock_mhz) in enumerate(wanted):
        later = next((i for i in range(next_one, len(stored_at)) if stored_at[i][1] == clock_mhz), None)
        if later is not None and stored_at[later][0] < at_s + 0.5:
            late_ms[place] = 1e3 * (stored_at[later][0] - at_s) - CALL_US / 1e3
            next_one = later + 1
    return late_ms


def busy_host(found: dict[str, float]) -> bool:
    """Whether a process that only sleeps came late: lateness beside it proves nothing of us."""
    return found["guard_host_late_p99_ms"] > BUSY_MS


def _figures(name: str, late_ms: Sequence[float]) -> dict[str, float]:
    return {f"{name}_late_median_ms": statistics.median(late_ms), f"{name}_late_p99_ms": _p99(late_ms)}


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _sleeping(due_s: Sequence[float]) -> subprocess.Popen[str]:
    """A process that sleeps to moments and prints by how many milliseconds it was late."""
    return _started(_SLEEP, *map(str, due_s))


def _started(program: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-S", "-c", program, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class _Reached:
    """A point of a stream that a device reaches at a moment: a sleep that gives the interpreter up."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def wait(self) -> float:
        time.sleep(max(0.0, self._at_s - time.monotonic()))
        return self._at_s


class _InProcess(ReadThroughGpu):
    """The same GPU, whose guard is given no moments: this process asks at each."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu, gpu.capabilities())
        self._gpu = gpu

    def lock_clock(self, clock_mhz: int) -> None:
        self._gpu.lock_clock(clock_mhz)

    def reset_clock(self) -> None:
        self._gpu.reset_clock()


_SLEEP = """
import sys, time
late = []
for at in map(float, sys.argv[1:]):
    time.sleep(max(0.0, at - time.monotonic()))
    late.append(1e3 * (time.monotonic() - at))
print(*late, sep="\\n")
"""

_WATCH = """
import sys, time
sys.path.insert(0, sys.argv[1])
import mmap
from fake_nvml import State
with open(sys.argv[2], "r+b") as file:
    gpu = State.from_buffer(mmap.mmap(file.fileno(), 0)).gpu[0]
until, seen = time.monotonic() + float(sys.argv[3]), gpu.changed_us
while time.monotonic() < until:
    if gpu.changed_us != seen:
        time.sleep(50e-6)
        seen = gpu.changed_us
        print(seen / 1e6, gpu.locked_mhz)
    time.sleep(200e-6)
"""


def main() -> int:
    """Measure, print, judge where the host had a core for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the three runs")
    parser.add_argument("--json", type=Path, help="leave the figures in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fake_nvml.load()
        node = FakeNvml(Path(folder) / "gpus", 1)
        os.environ.update(node.environment())
        found = measure(node, options.seconds)
    found |= {"load_average": os.getloadavg()[0], "cpus": os.cpu_count() or 0}
    if options.json is not None:
        options.json.write_text(json.dumps(found | {"host_too_busy": busy_host(found)}, indent=1) + "\n")
    for name, value in found.items():
        print(f"{name:34} {value:10.3f}   {f'bar {BARS[name]:g}' if name in BARS else ''}")
    if busy_host(found):
        print(f"not judged: a process that only sleeps was late by more than {BUSY_MS:g} ms")
        return 0
    return int(any(found[name] > bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
