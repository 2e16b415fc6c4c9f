"""Real engines in virtual time: the host's pace plays no part, so that figures are exact to the physics.

Each rank's simulated GPU has a clock of its own that passes only while it computes. Where one rank waits for
another, time travels along: a transfer brings the sender's time, a reduction the latest of its group. What is
real: DeepSpeed's engine and schedule, the losses, the exchange between ranks and all else of the plugin but
the measuring of profile and switching latency (the plan comes from the same physics).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ranks import PipelineEngine

import perseus_ds.runtime.startup.assembly as assembling
import perseus_ds.runtime.startup.begin as beginning
from perseus_ds.adapters.deepspeed.orders import order_of
from perseus_ds.device import Capabilities, Gpu
from perseus_ds.device.simulated import (
    SimulatedGpu,
    SimulatedSettings,
    VirtualTime,
    Work,
    model_named,
    physics,
)
from perseus_ds.errors import PerseusError
from perseus_ds.plan import build, write_plans
from perseus_ds.profile import Point, Profile, candidate_clocks
from perseus_ds.runtime.control.clock_requests import Request
from perseus_ds.schedule import Kind, Schedule

CLOCKS_MHZ = tuple(range(1410, 600, -45))
FIXED_S = {Kind.REDUCE_GRADS: 0.03, Kind.STEP: 0.02}

Handler = Callable[..., object]


class ClocksInTime:
    """Clock requests that come into force when they would, whatever the threads of this host are doing."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self.error: PerseusError | None = None
        self.changes = 0

    def put(self, request: Request) -> None:
        clock_mhz = request.clock_mhz or self._gpu.model.max_clock_mhz
        with self._gpu._changed:
            self._gpu._advance()
            line = self._gpu._timeline
            at_s = request.issued_s + request.delay_s
            line._pending.extend([(at_s, clock_mhz)])
            line._pending = type(line._pending)(sorted(line._pending))
        self.changes += 1

    def close(self) -> None:
        self._gpu.reset_clock()


def in_virtual_time() -> VirtualTime:
    """Let this (forked) process's simulated GPU live in virtual time; return its clock."""
    clock = VirtualTime()
    made = SimulatedGpu.__init__

    def make(gpu: SimulatedGpu, settings: SimulatedSettings, index: int = 0) -> None:
        made(gpu, settings, index, time=clock)

    def declared(gpu: Gpu, *_: object) -> tuple[Capabilities, None]:
        return gpu.capabilities(), None

    SimulatedGpu.__init__ = make  # type: ignore[assignment, method-assign]  # in a process of the test's own
    assembling.ClockRequests = ClocksInTime  # type: ignore[assignment, misc]
    beginning.calibrated = declared  # type: ignore[assignment]
    return clock


def carry_time(engine: PipelineEngine, clock: VirtualTime) -> None:
    """Have time travel with transfers and reductions, below whatever the plugin puts around them."""
    group = dist.new_group(backend="gloo")
    under_way: list[tuple[dist.Work, torch.Tensor]] = []

    def peer(step: int) -> int:
        return int(engine.grid.stage_to_global(engine.stage_id + step))

    def send(to: int) -> None:
        rank_status = torch.tensor([clock.now_s()], dtype=torch.float64)
        under_way.append((dist.isend(rank_status, to, group=group), rank_status))

    def receive(source: int) -> None:
        rank_status = torch.zeros(1, dtype=torch.float64)
        dist.recv(rank_status, source, group=group)
        clock.pass_s(max(0.0, float(rank_status) - clock.now_s()))

    def meet(_: int) -> None:
        rank_status = torch.tensor([clock.now_s()], dtype=torch.float64)
        dist.all_reduce(rank_status, op=dist.ReduceOp.MAX, group=engine.grid.get_data_parallel_group())
        clock.pass_s(float(rank_status) - clock.now_s() + FIXED_S[Kind.REDUCE_GRADS])
        while under_way:
            under_way.pop()[0].wait()

    def work(_: int) -> None:
        clock.pass_s(FIXED_S[Kind.STEP])

    ways: Mapping[str, tuple[Callable[[int], None], int]] = {
        "SendActivation": (send, +1),
        "RecvActivation": (receive, -1),
        "SendGrad": (send, -1),
        "RecvGrad": (receive, +1),
        "ReduceGrads": (meet, 0),
        "OptimizerStep": (work, 0),
    }

    def around(handler: Handler, way: Callable[[int], None], step: int) -> Handler:
        @wraps(handler)
        def timed(*args: object, **kwargs: object) -> object:
            result = handler(*args, **kwargs)
            way(peer(step) if step else 0)
            return result

        return timed

    engine._INSTRUCTION_MAP = {
        command: around(handler, *ways[command.__name__]) if command.__name__ in ways else handler
        for command, handler in engine._INSTRUCTION_MAP.items()
    }


def deepspeed_schedule(*, microbatches: int, stages: int) -> Schedule:
    """The schedule of a pipeline without tied weights, as its ranks would say it."""
    from deepspeed.runtime.pipe.schedule import TrainSchedule  # noqa: PLC0415

    orders = [
        order_of(TrainSchedule(microbatches, stages, stage), stage, without={Kind.REDUCE_TIED})
        for stage in range(stages)
    ]
    return Schedule("deepspeed.TrainSchedule", microbatches, tuple(orders))


def write_plan(
    path: Path,
    schedule: Schedule,
    forward_s: Sequence[float],
    fingerprint: Mapping[str, str],
    *,
    gpu: str | None = None,
) -> None:
    """Plan from the physics of the simulated GPU: what a perfect profile would say."""
    settings = SimulatedSettings()
    model = model_named(gpu or settings.gpu)
    clocks_mhz = candidate_clocks(model.clocks_mhz, len(CLOCKS_MHZ)) if gpu else CLOCKS_MHZ
    points = {}
    for stage, seconds in enumerate(forward_s):
        for kind, factor in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, settings.backward_over_forward)):
            work = Work(seconds * factor, settings.memory_bound, settings.intensity)
            points[stage, kind] = tuple(
                Point(mhz, physics.duration_s(model, mhz, work), physics.energy_j(model, mhz, work))
                for mhz in clocks_mhz
            )
    blocking_w = physics.power_w(model, model.max_clock_mhz, 0.0)
    profile = Profile(
        points=points,
        blocking_power_w=blocking_w,
        fixed_s={(s, kind): t for s in range(len(forward_s)) for kind, t in FIXED_S.items()},
    )
    plans = build(
        profile, schedule, blocking_power_w=blocking_w, reserve_pct=1.0, fingerprint=fingerprint, verify=True
    )
    write_plans(plans, path)


def perseus_block(run_dir: Path, forward_s: Sequence[float], **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A perseus block of a job in virtual time that plays a plan which is there."""
    return {
        "enabled": True,
        "run_dir": str(run_dir),
        "device": "simulated",
        "mode": "run",
        "profile": {"warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "simulated": {"forward_s": list(forward_s), "switch_latency_s": 0.0},
        **changes,
    }
