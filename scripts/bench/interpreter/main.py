"""What our threads cost a training thread that runs Python: its time, without and with them; see README.md.

python scripts/bench/interpreter/main.py [--turns 60] [--hz 250] [-o FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "fake_nvml")]

import torch  # noqa: E402
from fake_nvml import FakeNvml, load  # noqa: E402
from torch import nn  # noqa: E402

from perseus_ds.device.nvidia.nvml import NvmlGpu  # noqa: E402
from perseus_ds.device.request import DeviceRequest  # noqa: E402
from perseus_ds.runtime.measure.energy.energy_watch import EnergyWatch  # noqa: E402
from perseus_ds.runtime.measure.energy.reading_process import ReadingProcess  # noqa: E402
from perseus_ds.straggler import Notices  # noqa: E402

READ_US = 3000  # of an energy counter, as one H100 took in a virtual machine
STEPS = 60
NEVER_S = 1e6

End = Callable[[], int]
"""Ends what works beside the training; returns how often it has looked."""


def repeated(hz: float, look: Callable[[], object]) -> End:
    """Look again and again from a thread."""
    stop, looks = threading.Event(), [0]

    def run() -> None:
        while not stop.wait(1.0 / hz):
            look()
            looks[0] += 1

    thread = threading.Thread(target=run)
    thread.start()

    def end() -> int:
        stop.set()
        thread.join()
        return looks[0]

    return end


def watch_energy(hz: float) -> End:
    """Have our own watch look at a GPU's counter, whatever its period."""
    return repeated(hz, EnergyWatch(NvmlGpu(DeviceRequest())).look)


def look_for_notices(hz: float) -> End:
    """Look for announcements where there are none, as rank 0 does."""
    return repeated(hz, Notices(Path("nowhere"), replicas=1).poll)


def wake_only(hz: float) -> End:
    """Wake a thread that does nothing."""
    return repeated(hz, lambda: None)


class OtherProcess:
    """The process in which a GPU is looked at for us; what it has seen is taken after every step."""

    def __init__(self, hz: float) -> None:
        with NvmlGpu(DeviceRequest()) as gpu:
            self._process = ReadingProcess(*gpu.opened_elsewhere(), NEVER_S)
        self._every_s = 1.0 / hz
        self._looks = 0

    def begin(self) -> End:
        """Have it look."""
        self._looks = 0
        self._process.look_every(self._every_s)
        return self._end

    def take(self) -> None:
        """Take in what it has seen."""
        self._looks += len(self._process.take())

    def close(self) -> None:
        """End it."""
        self._process.close()

    def _end(self) -> int:
        self._process.look_every(NEVER_S)
        return self._looks


def main() -> None:
    """Train without and with each, in turns, there and back; print and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=60, help="there and back")
    parser.add_argument("--hz", type=float, default=250.0, help="looks per second")
    parser.add_argument("-o", type=Path, dest="output")
    options = parser.parse_args()
    load()
    with tempfile.TemporaryDirectory() as folder:
        node = FakeNvml(Path(folder) / "node", 1, read_us=READ_US)
        os.environ |= node.environment()
        process = OtherProcess(options.hz)
        kinds: dict[str, Callable[[], End]] = {
            "without": lambda: lambda: 0,
            "thread that wakes": lambda: wake_only(options.hz),
            "notices": lambda: look_for_notices(options.hz),
            "energy in a thread": lambda: watch_energy(options.hz),
            "energy in a process": process.begin,
        }
        took = trained(kinds, options.turns, process.take)
        process.close()
    text = json.dumps({name: compared(turns, took["without"]) for name, turns in took.items()}, indent=1)
    if options.output is not None:
        options.output.write_text(text)
    print(text)


def trained(
    kinds: dict[str, Callable[[], End]], turns: int, take: Callable[[], None]
) -> dict[str, list[tuple[float, int]]]:
    """Seconds and looks of each turn: many small operations, so that the interpreter is what is short.

    All kinds ``take`` after every step, as the training thread does.
    """
    torch.set_num_threads(1)
    block = nn.TransformerEncoderLayer(32, 1, 128, dropout=0.0, batch_first=True)
    tokens = torch.randn(1, 4, 32)
    took: dict[str, list[tuple[float, int]]] = {name: [] for name in kinds}
    for turn in range(2 * turns + 2):
        for name in kinds if turn % 2 else reversed(kinds):
            end = kinds[name]()
            began_s = time.perf_counter()
            for _ in range(STEPS):
                block(tokens).sum().backward()
                take()
            lasted_s = time.perf_counter() - began_s
            took[name].append((lasted_s, end()))
    return {name: all_turns[2:] for name, all_turns in took.items()}  # the first two warm up


def compared(turns: list[tuple[float, int]], without: list[tuple[float, int]]) -> dict[str, float]:
    """Compare turns there and back with those without: per cent, and milliseconds of every look."""
    seconds, alone = [lasted_s for lasted_s, _ in turns], [lasted_s for lasted_s, _ in without]
    pairs = [sum(seconds[at : at + 2]) / sum(alone[at : at + 2]) - 1.0 for at in range(0, len(seconds), 2)]
    spared = statistics.quantiles(pairs, n=10)  # a neighbour on this host takes seconds now and then
    kept = [pair for pair in pairs if spared[0] <= pair <= spared[-1]]
    mean, error = statistics.mean(kept), statistics.stdev(pairs) / len(pairs) ** 0.5
    looks = sum(count for _, count in turns) / sum(alone)  # for each second of training
    return {
        "looks_per_s": sum(count for _, count in turns) / sum(seconds),
        "longer_pct": 100.0 * mean,
        "error_pct": 100.0 * error,
        "of_a_look_ms": 1e3 * mean / looks if looks else 0.0,
        "error_of_a_look_ms": 1e3 * error / looks if looks else 0.0,
    }


if __name__ == "__main__":
    main()
