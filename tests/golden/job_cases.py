"""Jobs of every framework and schedule under a fixed plan: clock requests by instruction, and losses.

Each job first runs by itself until it has a profile: its request for a plan states schedule and fingerprint.
The golden job runs a plan built from a fixed profile for that schedule, in virtual time without noise:
nothing is drawn.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import perseus_ds
from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated.gpu import SimulatedGpu, opened_gpus
from perseus_ds.plan import PlanSet, Switching, write_plans
from perseus_ds.plan import build as build_plans
from perseus_ds.plan.file import PlanRequest, read_request
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind

LOSSES, SETTLED, RECORDED = 30, 5, 25
"""Losses of the first iterations; iterations at the plan that are not recorded, and those that are."""

CLOCKS_MHZ = range(1410, 700, -75)
BLOCKING_W = 70.0
CHANGE = ClockChange(0.0185, 0.0185, 0.0185)
BLOCK: Mapping[str, Any] = {
    "enabled": True,
    "device": "simulated",
    "simulated": {"noise": 0.0, "counter_noise": 0.0, "switch_latency_s": 0.037},
    "profile": {"min_window_s": 1.0, "max_clocks": 2, "warmup_iterations": 2, "max_slower_pct": 30.0},
    "audit": {"every_iterations": 1000, "iterations": 3},
}


@dataclass(frozen=True)
class JobCase:
    """A job: how many ranks, how a rank makes it (given its block), and what the block holds besides."""

    name: str
    ranks: int
    make: Callable[[Mapping[str, Any]], Any]
    block: Mapping[str, Any]


def _deepspeed(block: Mapping[str, Any], engine: str = "1f1b") -> Callable[[], Sequence[str]]:
    from deepspeed_hosts import dualpipe_v, users_own
    from ranks import batches, build, config

    if engine == "1f1b":
        made = build(config(4, perseus=block), stages=4, inner=(8, 8, 8, 16))
    else:
        made = {"dualpipe-v": dualpipe_v, "own": users_own}[engine](2, perseus=block)
    data = batches()
    return lambda: [float(made.train_batch(data)).hex()]


def _zero(block: Mapping[str, Any], stage: int = 1) -> Callable[[], Sequence[str]]:
    from deepspeed_hosts import ZeroHost, zero_engine

    return ZeroHost(zero_engine(stage, perseus=block)).train


def _megatron(block: Mapping[str, Any], **shape: Any) -> Callable[[], Sequence[str]]:  # noqa: ANN401
    from megatron_jobs import Job, Shape

    job = Job(Shape(microbatches=4, **shape))
    perseus_ds.attach(job.schedules, config=block)
    job.run_pass = job.schedules.get_forward_backward_func()
    return job.step


def _torch(block: Mapping[str, Any], name: str) -> Callable[[], Sequence[str]]:
    from pipelines import Pipeline

    pipeline = Pipeline(name, 4)
    perseus_ds.attach(pipeline.schedule, config=block)
    return pipeline.train


SLOWER = {"objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0}}
TORCH = ("1F1B", "GPipe", "Interleaved", "LoopedBFS", "InterleavedZeroBubble", "ZBV", "DualPipeV")
CASES = {
    case.name: case
    for case in (
        JobCase("deepspeed 1f1b", 4, _deepspeed, {}),
        JobCase("deepspeed dualpipe-v", 2, lambda block: _deepspeed(block, "dualpipe-v"), {}),
        JobCase("deepspeed own schedule", 2, lambda block: _deepspeed(block, "own"), {}),
        JobCase("zero 1", 2, _zero, SLOWER),
        JobCase("zero 3", 2, lambda block: _zero(block, 3), SLOWER),
        JobCase("megatron 1f1b", 2, lambda block: _megatron(block, pipeline=2, layers_per_chunk=2), {}),
        JobCase("megatron interleaved", 2, lambda block: _megatron(block, pipeline=2, chunks=2), {}),
        JobCase("megatron no pipeline", 1, _megatron, SLOWER),
        *(JobCase(f"torch {name}", 2, lambda block, name=name: _torch(block, name), {}) for name in TORCH),
    )
}


def record(case: JobCase, folder: Path) -> dict[str, Any]:
    """Run the job twice in the fork harness and return what every rank lost and asked for."""
    from ranks import run_ranks

    own, fixed = ({**BLOCK, **case.block, "run_dir": str(folder / name)} for name in ("own", "fixed"))
    run_ranks(case.ranks, _until_profiled, case.name, {**own, "mode": "profile"})
    plans = _fixed_plans(read_request(folder / "own" / "plan_request.json"))
    (folder / "fixed").mkdir(parents=True)
    write_plans(plans, folder / "fixed" / "plan.json")
    said = run_ranks(case.ranks, _under_plan, case.name, {**fixed, "mode": "run"})
    orders = plans.schedule.orders
    return {
        str(one.rank): _rows(*one.value, [str(i) for i in orders[one.rank % len(orders)]]) for one in said
    }


def _fixed_plans(own: PlanRequest) -> PlanSet:
    """Plans of the same job and schedule, from a profile that no measurement enters."""
    seconds = {Kind.FORWARD: 0.3, Kind.BACKWARD: 0.6, Kind.BACKWARD_INPUT: 0.3, Kind.BACKWARD_WEIGHT: 0.3}
    points = {}
    for stage in range(own.schedule.stages):
        for kind, base_s in seconds.items():
            time_s = [base_s * (1 + 0.05 * stage) * (0.05 + 0.95 * 1410 / mhz) for mhz in CLOCKS_MHZ]
            points[stage, kind] = tuple(
                Point(mhz, time, time * (90 + 260 * (mhz / 1410) ** 3))
                for mhz, time in zip(CLOCKS_MHZ, time_s, strict=True)
            )
    profile = Profile(points, blocking_power_w=BLOCKING_W)
    made = build_plans(profile, own.schedule, blocking_power_w=BLOCKING_W, switching=Switching(CHANGE))
    return replace(made, fingerprint=own.fingerprint)


def _until_profiled(rank: int, name: str, block: Mapping[str, Any]) -> None:
    from jobs import agreed, names

    train, run_dir = _made(name, block), Path(block["run_dir"])
    for _ in range(600):
        train()
        if agreed("profiled" in names(run_dir), False):
            return
    raise AssertionError(f"{name}: no profile within 600 iterations")


def _under_plan(rank: int, name: str, block: Mapping[str, Any]) -> tuple[list[str], list[Any], list[Any]]:
    """Losses; requests (device s, MHz, 0 for the default clock); computations (begin and end, device s)."""
    from jobs import agreed, names

    asked: list[tuple[float, int]] = []
    lock, reset = SimulatedGpu.lock_clock, SimulatedGpu.reset_clock

    def noted_lock(gpu: SimulatedGpu, clock_mhz: int) -> None:
        asked.append((gpu.now_s(), clock_mhz))
        lock(gpu, clock_mhz)

    def noted_reset(gpu: SimulatedGpu) -> None:
        asked.append((gpu.now_s(), 0))
        reset(gpu)

    SimulatedGpu.lock_clock, SimulatedGpu.reset_clock = noted_lock, noted_reset  # type: ignore[method-assign]
    train, run_dir = _made(name, block), Path(block["run_dir"])
    losses, left = [list(train()) for _ in range(LOSSES)], 600
    while left > SETTLED + RECORDED and not agreed("running" in names(run_dir), False):
        train()
        left -= 1
    for _ in range(SETTLED + RECORDED):
        train()
    tasks = [(task.started_s, task.finished_s) for task in opened_gpus()[-1].truth.tasks]
    return [loss for own in losses for loss in own], asked, tasks


def _made(name: str, block: Mapping[str, Any]) -> Callable[[], Sequence[str]]:
    with warnings.catch_warnings():  # Megatron and torch warn of what is not installed
        warnings.simplefilter("ignore")
        made: Callable[[], Sequence[str]] = CASES[name].make(block)
    return made


def _rows(
    losses: list[str], asked: list[tuple[float, int]], tasks: list[tuple[float, float]], order: list[str]
) -> dict[str, Any]:
    """Each distinct iteration once, as rows ``instruction seconds [MHz@seconds after its begin ...]``."""
    computed = [word for word in order if word.lstrip("0123456789")[:1] in "FBIW"]
    size = len(computed)
    iterations: list[str] = []
    for begin in range(len(tasks) - RECORDED * size, len(tasks), size):
        rows = []
        for place in range(begin, begin + size):
            started_s, finished_s = tasks[place]
            until_s = tasks[place + 1][0] if place + 1 < len(tasks) else float("inf")
            own = [f"{mhz}@{at - started_s:.6f}" for at, mhz in asked if started_s <= at < until_s]
            rows.append(" ".join([computed[(place - begin) % size], f"{finished_s - started_s:.6f}", *own]))
        iterations.append("; ".join(rows))
    distinct = list(dict.fromkeys(iterations))
    return {
        "losses": losses,
        "iterations": [distinct.index(one) for one in iterations],
        "distinct": [one.split("; ") for one in distinct],
    }
