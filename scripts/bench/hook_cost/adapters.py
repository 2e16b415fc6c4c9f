"""What an adapter's hooks add per instruction, in turns with DeepSpeed's, printed as JSON; see README.md.

python scripts/bench/hook_cost/adapters.py [--calls 20000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from perseus_ds.adapters.deepspeed import Hooks as DeepSpeedHooks
from perseus_ds.adapters.torch_pipelining import Hooks as PipeliningHooks
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.recorder import HostStopwatch, Recorder
from perseus_ds.schedule import Kind

BAR = 1.1
BLOCK = 500  # instructions of one adapter before the next one's turn


Sides = tuple[Callable[[], None], Callable[[], None], Callable[[], object]]
"""How hooks are installed and removed, and one block of instructions."""


class Marking:
    """Two marks per instruction, as a session takes them."""

    def __init__(self) -> None:
        self._recorder = Recorder(HostStopwatch(SimulatedGpu(SimulatedSettings())))

    def iteration_begins(self, batch: Batch) -> bool:
        """Want every instruction."""
        del batch
        self._recorder.begin()
        return True

    def before(self, kind: Kind, size: int = 0) -> None:
        """Mark."""
        self._recorder.started(kind, size)

    def after(self, kind: Kind) -> None:
        """Mark."""
        del kind
        self._recorder.ended()

    def iteration_ends(self) -> None:
        """Let go of the marks."""
        self._recorder.begin()

    def other_schedule_begins(self) -> None:
        """Nothing."""

    def iteration_broke(self) -> None:
        """Nothing."""


def deepspeed() -> Sides:
    """One block of backwards as DeepSpeed's engine runs it: a look-up in the map and a call."""
    backward_pass = type("BackwardPass", (), {})

    class TrainSchedule:
        micro_batches, stages = BLOCK, 1

        def steps(self) -> list[list[object]]:
            return [[backward_pass()]]

    def exec_schedule(_: object) -> None:
        command = backward_pass()
        for microbatch in range(BLOCK):
            engine._INSTRUCTION_MAP[type(command)](engine, buffer_id=microbatch)  # noqa: SLF001

    engine: Any = SimpleNamespace(
        _INSTRUCTION_MAP={backward_pass: lambda *_, **__: None}, _exec_schedule=exec_schedule
    )
    schedule = TrainSchedule()
    hooks = DeepSpeedHooks(engine, Marking())
    return hooks.install, hooks.remove, lambda: engine._exec_schedule(schedule)  # noqa: SLF001


def pipelining() -> Sides:
    """One block of backwards as torch's schedule runs it: a call of the stage's method."""

    def nothing(*args: object, **kwargs: object) -> None:
        del args, kwargs

    def step() -> None:
        for microbatch in range(BLOCK):
            stage.backward_one_chunk(microbatch, loss=None, full_backward=True, last_backward=False)

    names = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk", "perform_reduce_grad")
    stage: Any = SimpleNamespace(is_last=False, **dict.fromkeys(names, nothing))
    schedule: Any = SimpleNamespace(
        _stage=stage, _n_microbatches=BLOCK, _has_backward=True, _maybe_compute_loss=nothing, step=step
    )
    hooks = PipeliningHooks(schedule, Marking(), reduces=False)
    return hooks.install, hooks.remove, lambda: schedule.step()  # noqa: PLW0108  # looked up anew: it is replaced


def timed_us(block: Callable[[], object]) -> float:
    """Time one instruction of a block."""
    began = perf_counter_ns()
    block()
    return (perf_counter_ns() - began) / 1e3 / BLOCK


def main() -> int:
    """Measure in turns, print, and state by the exit code whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    blocks = max(3, parser.parse_args().calls // BLOCK)
    adapters = {"deepspeed": deepspeed(), "pipelining": pipelining()}
    found: dict[str, list[float]] = {name: [] for name in adapters}
    for _ in range(blocks):
        for name, (install, remove, block) in adapters.items():
            bare_us = timed_us(block)
            install()
            found[name].append(timed_us(block) - bare_us)
            remove()
    each_us = {name: round(statistics.median(times), 3) for name, times in found.items()}
    ratio = each_us["pipelining"] / each_us["deepspeed"]
    print(
        json.dumps(
            {"instruction_us": each_us, "pipelining_over_deepspeed": round(ratio, 3), "bar": BAR}
            | {"met": ratio <= BAR, "python": sys.version.split()[0]},
            indent=1,
        )
    )
    if ratio > BAR:
        print(f"bar missed: {ratio:.3f} times DeepSpeed's, bar {BAR:g}", file=sys.stderr)
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
