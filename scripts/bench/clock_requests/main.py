"""What does a clock request cost the training thread, and is every clock put back? On fake NVIDIA GPUs.

    python scripts/bench/clock_requests/main.py [--kills 200] [--json FILE]

Measures the guard with the real pynvml on a fake driver: no clock of a real GPU is touched. The exit code
states whether the bars are met.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "fake_nvml"), str(ROOT / "tests" / "e2e" / "guard")]

import fake_nvml  # noqa: E402 - the line above says where it is
import in_time  # noqa: E402
from fake_nvml import FakeNvml, GpuState  # noqa: E402

from perseus_ds.device import DeviceRequest, Gpu  # noqa: E402
from perseus_ds.device.choose import choose  # noqa: E402
from perseus_ds.runtime.control.clock_requests import Ask, ClockRequests, Request  # noqa: E402

TRAINER = ROOT / "tests" / "e2e" / "guard" / "trainer.py"
SERVICE = TRAINER.with_name("service.py")
REQUESTS = 5_000
ROUND_TRIPS = 300
BARS = {
    "put_median_us": 30.0,
    "put_p99_us": 100.0,
    "request_median_us": 30.0,
    "request_p99_us": 100.0,
    "to_driver_median_ms": 1.0,
    "restore_longest_ms": 200.0,
    "clocks_left": 0,
}


def cost_on_the_training_thread(gpu: Gpu) -> dict[str, float]:
    """Time what the training thread does: it hands a request to the engine's own sender."""
    sender = ClockRequests(gpu)
    try:
        return cost_of(lambda clock_mhz: sender.put(Request((Ask(clock_mhz),), gpu.now_s())), gpu, "put")
    finally:
        sender.close()


def cost_of_a_request(gpu: Gpu) -> dict[str, float]:
    """Time `lock_clock` on this thread: what the sender does for each, for who asks without one."""
    return cost_of(gpu.lock_clock, gpu, "request")


def cost_of(act: Callable[[int], None], gpu: Gpu, name: str) -> dict[str, float]:
    """Time an act for one clock after the other, a millisecond apart, as instructions are.

    Units: microseconds.
    """
    clocks_mhz = gpu.capabilities().clocks_mhz
    taken_us = []
    for number in range(REQUESTS):
        clock_mhz = clocks_mhz[number % len(clocks_mhz)]
        began = time.perf_counter_ns()
        act(clock_mhz)
        taken_us.append((time.perf_counter_ns() - began) / 1e3)
        time.sleep(0.001)
    return {
        f"{name}_median_us": statistics.median(taken_us),
        f"{name}_p99_us": statistics.quantiles(taken_us, n=100)[98],
    }


def request_to_driver(gpu: Gpu, node: FakeNvml) -> dict[str, float]:
    """Time from the request until it stands in the driver, seen from outside.

    Units: milliseconds.
    """
    taken_ms = []
    for number in range(ROUND_TRIPS):
        clock_mhz = gpu.capabilities().clocks_mhz[number % 2]
        began = time.perf_counter_ns()
        gpu.lock_clock(clock_mhz)
        while node.state.gpu[0].locked_mhz != clock_mhz:
            pass
        taken_ms.append((time.perf_counter_ns() - began) / 1e6)
        time.sleep(0.003)
    return {"to_driver_median_ms": statistics.median(taken_ms)}


def beside_a_slow_gpu(folder: Path) -> dict[str, float]:
    """Time requests to the driver through guardd on seven GPUs, while the eighth's calls take 50 ms each.

    Units: milliseconds.
    """
    node = FakeNvml(folder / "eight", 8)
    node.state.apart = 1
    node.state.gpu[0].call_us = 50_000
    os.environ.update(node.environment(), PERSEUS_GUARDD_SOCKET=str(folder / "guardd.sock"))
    with guardd(folder / "guardd.sock"), contextlib.ExitStack() as leases:
        slow, *others = [
            leases.enter_context(choose(DeviceRequest("guardd", local_rank=index)).gpu) for index in range(8)
        ]
        over = threading.Event()
        hammer = threading.Thread(target=ask_without_pause, args=(slow, over))
        hammer.start()
        taken_ms = [
            1e3 * time_to_driver(gpu, node.state.gpu[index], clock_mhz)
            for clock_mhz in gpu_clocks(slow, 30)
            for index, gpu in enumerate(others, start=1)
        ]
        over.set()
        hammer.join()
    return {"beside_slow_median_ms": statistics.median(taken_ms), "beside_slow_longest_ms": max(taken_ms)}


def gpu_clocks(gpu: Gpu, count: int) -> tuple[int, ...]:
    """The highest clocks of a GPU."""
    return gpu.capabilities().clocks_mhz[:count]


def time_to_driver(gpu: Gpu, seen: GpuState, clock_mhz: int) -> float:
    """Seconds from a request until it stands in the driver."""
    gpu.lock_clock(clock_mhz)
    taken_s = wait_until(lambda: seen.locked_mhz == clock_mhz)
    return float("inf") if taken_s is None else taken_s


def ask_without_pause(gpu: Gpu, over: threading.Event) -> None:
    """Keep a GPU's driver busy."""
    clocks_mhz = gpu_clocks(gpu, 2)
    while not over.wait(0.005):
        gpu.lock_clock(clocks_mhz[int(time.monotonic() * 200) % 2])


@contextmanager
def guardd(path: Path) -> Iterator[None]:
    """The node's service, with every GPU for everybody."""
    command = [sys.executable, str(SERVICE), str(path), "0", "gpus=*"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield
    process.terminate()
    process.stdout.close()
    process.wait()


@contextmanager
def trainer(how: str, seed: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that asks for clocks at random, and its guard's number."""
    command = [sys.executable, str(TRAINER), str(seed), how]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stdout is not None
    yield process, int(process.stdout.readline())
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its forked workers, too
    process.stdout.close()
    process.wait()


def wait_until(true: Callable[[], bool], limit_s: float = 20.0) -> float | None:
    """Seconds until something is so."""
    began_s = time.monotonic()
    while time.monotonic() < began_s + limit_s:
        if true():
            return time.monotonic() - began_s
        time.sleep(0.0005)
    return None


def gone(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in {"Z", "X"}


def restore_after_kill(node: FakeNvml, count: int = 20) -> dict[str, float]:
    """Time from SIGKILL of the trainer to a free clock, the driver's call (10 ms) included.

    Units: milliseconds.
    """
    node.state.gpu[0].call_us = 10_000
    taken_ms = []
    for seed in range(count):
        with trainer("runs", seed) as (process, _):
            wait_until(lambda: any(node.locked_mhz()))
            process.kill()
            taken_s = wait_until(lambda: not any(node.locked_mhz()))
            taken_ms.append(1e3 * taken_s if taken_s is not None else float("inf"))
    node.state.gpu[0].call_us = 0
    return {"restore_median_ms": statistics.median(taken_ms), "restore_longest_ms": max(taken_ms)}


def clocks_left_after_kills(node: FakeNvml, kills: int) -> dict[str, float]:
    """Kill trainer, guard or both at random; what the guard cannot do, `perseus-ds clocks reset` does."""
    import random  # noqa: PLC0415 - here alone

    from perseus_ds.device.guard import repair  # noqa: PLC0415

    draw, left = random.Random(kills), 0  # noqa: S311 - which process dies is no secret
    for seed in range(kills):
        node.state.gpu[0].call_us = draw.choice([0, 1000, 10_000])
        with trainer(draw.choice(["runs", "raises", "forks"]), seed) as (process, guard):
            time.sleep(0.1 * draw.random())
            for pid in draw.choice([[process.pid], [guard], [guard, process.pid]]):
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02 * draw.random())
        wait_until(lambda guard=guard: gone(guard))
        repair()
        left += any(node.locked_mhz())
    return {"kills": kills, "clocks_left": left}


def measure(kills: int, seconds: float) -> dict[str, float]:
    """Everything, on one fake node."""
    with tempfile.TemporaryDirectory() as folder:
        fake_nvml.load()
        node = FakeNvml(Path(folder) / "gpus", 1)
        os.environ.update(node.environment())
        with choose(DeviceRequest("nvml")).gpu as gpu:
            found = cost_on_the_training_thread(gpu) | cost_of_a_request(gpu) | request_to_driver(gpu, node)
        found |= in_time.measure(node, seconds)
        found |= restore_after_kill(node) | clocks_left_after_kills(node, kills)
        return found | beside_a_slow_gpu(Path(folder))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run of requests in time")
    parser.add_argument("--json", type=Path, help="leave the figures in this file")
    options = parser.parse_args()
    found = measure(options.kills, options.seconds)
    found |= {"load_average": os.getloadavg()[0], "cpus": os.cpu_count() or 0}
    bars = BARS if in_time.busy_host(found) else BARS | in_time.BARS
    if options.json is not None:
        busy = {"host_too_busy": in_time.busy_host(found)}
        options.json.write_text(json.dumps(found | busy, indent=1) + "\n")
    for name, value in found.items():
        print(f"{name:34} {value:10.3f}   {f'bar {bars[name]:g}' if name in bars else ''}")
    return int(any(found[name] > bar for name, bar in bars.items()))


if __name__ == "__main__":
    sys.exit(main())
