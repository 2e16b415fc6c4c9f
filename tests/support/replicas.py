"""Jobs of several replicas in virtual time, one of which is slowed or held down for a while."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from deepspeed_hosts import ZeroHost, zero_engine
from jobs import events, give_way
from numpy.typing import NDArray
from ranks import PipelineEngine, batches, build, config, losses, run_ranks

import perseus_ds
from perseus_ds.adapters.deepspeed import order_of
from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.device.simulated.models import GpuModel, model_named
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.plan import build as build_plans
from perseus_ds.plan import write_plans
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Point, Profile, write_profile
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.attach import session_of
from perseus_ds.runtime.job import PLAN_ONLY
from perseus_ds.runtime.phases import ActivePlan
from perseus_ds.runtime.status import JobStatus
from perseus_ds.schedule import Kind, Schedule

# Plans from the physics of the simulated GPU: what a perfect profile would say.

CLOCKS_MHZ = tuple(range(1410, 600, -45))
SETTINGS = SimulatedSettings()
FIXED_S = {Kind.REDUCE_GRADS: SETTINGS.reduce_grads_s, Kind.STEP: SETTINGS.step_s}


def write_plan(
    path: Path, forward_s: Sequence[float], fingerprint: Mapping[str, str], *, profile_path: Path | None
) -> None:
    """Plan a pipeline without tied weights from the physics of its GPUs; also write the profile if asked."""
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    model, stages, microbatches = model_named(SETTINGS.gpu), len(forward_s), 4
    orders = [
        order_of(TrainSchedule(microbatches, stages, stage), stage, without={Kind.REDUCE_TIED})
        for stage in range(stages)
    ]
    waiting_w = {mhz: physics.BLOCKED.power_w(model, mhz, model.memory_clocks_mhz[0]) for mhz in CLOCKS_MHZ}
    blocking_w = waiting_w[model.max_clock_mhz]
    fixed_s = {(stage, kind): lasts_s for stage in range(stages) for kind, lasts_s in FIXED_S.items()}
    profile = Profile(points=points_of(forward_s), blocking_power_w=blocking_w, fixed_s=fixed_s)
    if profile_path is not None:
        own = {key: value for key, value in fingerprint.items() if key not in PLAN_ONLY}
        write_profile(replace(profile, blocking_w=waiting_w, fingerprint=own), profile_path)
    plans = build_plans(
        profile,
        Schedule("deepspeed.TrainSchedule", microbatches, tuple(orders)),
        blocking_power_w=blocking_w,
        reserve_pct=1.0,
        switching=Switching(split="never"),
        fingerprint=fingerprint,
        verify=True,
    )
    write_plans(plans, path)


def points_of(forward_s: Sequence[float]) -> dict[tuple[int, Kind], tuple[Point, ...]]:
    model, points = model_named(SETTINGS.gpu), {}
    for stage, seconds in enumerate(forward_s):
        for kind, factor in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, SETTINGS.backward_over_forward)):
            work = Work(seconds * factor, SETTINGS.memory_bound, SETTINGS.intensity)
            points[stage, kind] = tuple(_point(model, mhz, work) for mhz in CLOCKS_MHZ)
    return points


def _point(model: GpuModel, clock_mhz: int, work: Work) -> Point:
    time_s = physics.duration_s(model, clock_mhz, work)
    energy_j = physics.energy_j(model, clock_mhz, work)
    return Point(clock_mhz, time_s, energy_j, time_sd_s=SETTINGS.noise * time_s)


Spells = Mapping[int, list[tuple[int, int, float]]]
"""For a replica: from which iteration of the plan to which, how many times slower."""

Act = Callable[[PipelineEngine, int], None]
"""What a test does with a rank's engine before an iteration of the plan."""


@dataclass
class Book:
    """One rank's view of a running plan, iteration by iteration (counted from the plan's first).

    ``plans`` is what every replica plays, ``own_s`` and ``duration_s`` what was exchanged about the
    iteration, ``energy_j`` and ``end_s`` the truth of this rank's GPU.
    """

    losses: list[str] = field(default_factory=list)
    plans: list[list[float]] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    own_s: list[list[float]] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    attached: bool = False
    seen: JobStatus | None = None
    spent_j: float = 0.0

    def begin(self, engine: PipelineEngine) -> ActivePlan | None:
        session = session_of(engine)
        active_plan = None if session is None else session.active_plan
        if session is not None and active_plan is not None:
            if not self.plans:
                self.seen = active_plan.observed
            self.plans.append(list(active_plan.plans))
            self.modes.append(session.settings.mode)
        return active_plan

    def end(self, active_plan: ActivePlan | None) -> None:
        now = opened_gpus()[-1].true_now() if opened_gpus() else None
        if active_plan is not None and now is not None:
            self.energy_j.append(now.energy_j - self.spent_j)
            self.end_s.append(now.time_s)
            observed = active_plan.observed
            if len(self.plans) > 1 and observed is not self.seen and observed is not None:
                if observed.replicas is not None:
                    self.own_s.append(observed.replicas.own_s.tolist())
                self.duration_s.append(observed.iteration_s or float("nan"))
            self.seen = observed
        self.spent_j = now.energy_j if now is not None else 0.0


def straggle(
    rank: int,
    content: Mapping[str, Any],
    stages: int,
    spells: Spells,
    iterations: int,
    *,
    act: Act = lambda *_: None,
    slow_stage: int | None = None,
) -> Book:
    """Train so many iterations at the plan; ``slow_stage`` slows one stage of a replica alone."""
    book = Book()
    engine = build(content, stages=stages)
    replica = engine.grid.get_data_parallel_rank()
    mine = spells.get(replica, []) if slow_stage in (None, engine.stage_id) else []
    data = batches()
    while len(book.plans) < iterations:
        act(engine, len(book.plans))
        for gpu in opened_gpus():
            gpu.slowness = slowness(mine, len(book.plans))
        active_plan = book.begin(engine)
        book.losses.append(float(engine.train_batch(data)).hex())
        book.end(active_plan)
    book.attached = "_exec_schedule" in vars(engine)
    return book


def slowness(spells: Sequence[tuple[int, int, float]], iteration: int) -> float:
    return next((factor for start, end, factor in spells if start <= iteration < end), 1.0)


def losses_without_us(content: Mapping[str, Any], stages: int, ranks: int, steps: int) -> list[list[str]]:
    """The exact losses of the same job without a perseus block, rank by rank."""
    plain = {key: value for key, value in content.items() if key != "perseus"}
    return [said.value for said in run_ranks(ranks, lambda _: losses(build(plain, stages=stages), steps))]


def planned_job(
    folder: Path,
    *,
    ranks: int,
    forward_s: tuple[float, ...],
    perseus: Mapping[str, Any] | None = None,
    profiled: bool = False,
    **settings: Any,  # noqa: ANN401
) -> dict[str, Any]:
    block = {
        "enabled": True,
        "run_dir": str(folder / "run"),
        "device": "simulated",
        "mode": "run",
        "profile": {"warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "simulated": {"forward_s": list(forward_s), "switch_latency_s": 0.0, "transfer_s": 0.0},
        **(perseus or {}),
    }
    seen = block | {"mode": "observe", "run_dir": str(folder / "seen")}
    settings = {"gradient_clipping": 1.0, **settings}
    content = config(perseus=seen, **settings)
    run_ranks(ranks, lambda _: losses(build(content, stages=len(forward_s)), 1))
    fingerprint = events(folder / "seen")[0]["fingerprint"]
    profile_path = folder / "run" / "profile.json" if profiled else None
    write_plan(folder / "run" / "plan.json", forward_s, fingerprint, profile_path=profile_path)
    return config(perseus=block, **settings)


# Jobs in virtual time with a GPU that is held down for some iterations, against default clocks.
#
# `compare` trains a `Case` twice, by its plan and at default clocks, and returns a `Comparison`.

PLANNED = 150
"""Iterations that are compared, unless another number is asked for."""
BOUND_OVER = 1000
"""Iterations over which the product bounds what recoveries cost (``straggler.max_cost_pct``)."""
MOST_SLOWER_PCT = 0.2
NAMED_WITHIN = 5
"""Iterations."""
_SWEEP_FROM = 12
_SPELL = 12
_MOST_BEFORE = 350
"""Iterations until there is a plan."""

When = Callable[[int, int], bool]
"""Whether the GPU is held down: in an iteration of the job, and of the plan (below 0 before there is one)."""

SPELLS: dict[str, When] = {
    "always": lambda *_: True,
    "during the sweep": lambda iteration, planned: planned < 0 and iteration >= _SWEEP_FROM,
    "later": lambda _, planned: planned >= 20,
    "on and off": lambda iteration, planned: (iteration if planned < 0 else planned) // _SPELL % 2 == 0,
}
CAPS: dict[str, float] = {"clock": 900, "power": 250.0}
"""MHz and watts."""
NOISES_PCT = (0.5, 2.0)
"""Of one computation's duration."""


@dataclass(frozen=True)
class Layout:
    """Replicas of a job and the seconds of a forward pass on each stage; the slow GPU is the last rank's."""

    replicas: int
    forward_s: tuple[float, ...]

    @property
    def ranks(self) -> int:
        return self.replicas * len(self.forward_s)


LAYOUTS = {
    "ZeRO-1 dp 2": Layout(2, (0.4,)),
    "pipeline 2 x dp 2": Layout(2, (0.4, 0.5)),
    "pipeline 2 x dp 4": Layout(4, (0.4, 0.5)),
    "Megatron 2 x dp 2": Layout(2, (0.4, 0.5)),
    "light last stage 2 x dp 2": Layout(2, (0.5, 0.3)),
}


@dataclass(frozen=True)
class Case:
    """How a job is laid out, what holds its last GPU down (nothing: ""), when, and how durations vary."""

    layout: str
    cap: str = ""
    spell: str = "always"
    noise_pct: float = 0.5

    def __str__(self) -> str:
        held = f"{self.cap} cap {self.spell}" if self.cap else "no cap"
        return f"{self.layout}, {held}, noise {self.noise_pct:g} %"

    def holds(self, iteration: int, planned: int) -> bool:
        return bool(self.cap) and SPELLS[self.spell](iteration, planned)


def all_cases() -> Iterator[Case]:
    for layout, noise_pct in product(LAYOUTS, NOISES_PCT):
        yield Case(layout, noise_pct=noise_pct)
        yield from (Case(layout, cap, spell, noise_pct) for cap, spell in product(CAPS, SPELLS))


Course = tuple[NDArray[np.float64], list[frozenset[int]]]
"""Seconds of every iteration of a job at its plan, and the replicas that were named in it."""


@dataclass(frozen=True)
class Comparison:
    """A job by its plan against the same at default clocks.

    ``slower_pct`` is the mean over ``iterations``. ``counted_pct`` is what the bound is about: where a GPU
    recovers again and again, the time lost over as many iterations as the product's own bound counts.
    ``error_pct`` is two standard errors. ``named_after`` counts iterations until the slow replica was named
    (None: never, or it was not slow), ``unnamed`` the slow ones after that in which it was not named, and
    ``accused`` the iterations in which another replica was, or one that had not been slow by the plan.
    """

    iterations: int
    slower_pct: float
    counted_pct: float
    error_pct: float
    named_after: int | None
    unnamed: int
    accused: int

    def is_met(self, case: Case) -> bool:
        slower = self.counted_pct > MOST_SLOWER_PCT + min(self.error_pct, MOST_SLOWER_PCT)
        if slower or self.accused:
            return False
        if not case.cap or case.spell not in {"always", "later"}:
            return True
        return self.named_after is not None and self.named_after <= NAMED_WITHIN and not self.unnamed


def compare(case: Case, folder: Path, *, seed: int = 0, iterations: int = PLANNED) -> Comparison:
    ours_s, ours_named = _course(case, folder, "automatic", seed, iterations)
    default_s, _ = _course(case, folder, "observe", seed, iterations)
    slower_pct = 100.0 * (ours_s / default_s - 1.0)
    slow_replica = LAYOUTS[case.layout].replicas - 1
    held = np.array([case.holds(_MOST_BEFORE, planned) for planned in range(iterations)])
    named = np.array([slow_replica in one for one in ours_named[:iterations]])
    others = np.array([bool(one - {slow_replica}) for one in ours_named[:iterations]])
    seen = np.flatnonzero(held & named)
    counted = max(iterations, BOUND_OVER) if case.spell == "on and off" else iterations
    return Comparison(
        iterations=iterations,
        slower_pct=float(slower_pct.mean()),
        counted_pct=float(slower_pct.sum()) / counted,
        error_pct=float(2.0 * slower_pct.std() / iterations**0.5),
        named_after=int(seen[0] - held.argmax()) if len(seen) else None,
        unnamed=int((held & ~named)[seen[0] :].sum()) if len(seen) else int(held.sum()),
        accused=int((others | (named & ~np.maximum.accumulate(held))).sum()),
    )


def _course(case: Case, folder: Path, mode: str, seed: int, iterations: int) -> Course:
    layout = LAYOUTS[case.layout]
    block = {
        "enabled": True,
        "mode": mode,
        "run_dir": str(folder / mode),
        "device": "simulated",
        "objective": {"policy": "no_slowdown"},
        "profile": {"min_window_s": 4.0, "max_clocks": 4, "warmup_iterations": 2, "max_slower_pct": 30.0},
        "audit": {"every_iterations": 60, "iterations": 10},
        "simulated": {
            "forward_s": list(layout.forward_s),
            "noise": case.noise_pct / 100.0,
            "seed": seed,
            "host_step_s": 3600.0,  # a starved host's pauses between iterations are no part of the job
        },
    }
    return run_ranks(layout.ranks, _trained, block, case, iterations)[0].value


def _trained(rank: int, block: dict[str, Any], case: Case, iterations: int) -> Course:
    engine, step = _job(block, case.layout)
    observes = block["mode"] == "observe"
    begins_s: list[float] = []
    named: list[frozenset[int]] = []
    iteration = 0
    while len(begins_s) <= iterations:
        assert begins_s or iteration < _MOST_BEFORE
        session = session_of(engine)
        plan = None if session is None else session.active_plan
        planned = len(begins_s) - 1
        if plan is not None or (observes and iteration >= 3):
            planned += 1
            begins_s.append(opened_gpus()[-1].true_now().time_s)
            named.append(frozenset(one.replica for one, _ in plan.awaited) if plan else frozenset())
        if rank == LAYOUTS[case.layout].ranks - 1:
            _hold_down(case.cap, held=case.holds(iteration, planned))
        step()
        if rank == 0:
            give_way(Path(block["run_dir"]))
        iteration += 1
    return np.diff(begins_s), named


def _job(block: dict[str, Any], layout: str) -> tuple[Any, Callable[[], object]]:
    if layout.startswith("ZeRO"):
        host = ZeroHost(zero_engine(1, microbatches=4, perseus=block))
        return host.engine, host.train
    if layout.startswith("Megatron"):
        from megatron_jobs import Job, Shape  # only where Megatron is installed

        job = Job(Shape(2, microbatches=4, data=2, overlap_reduce=True, distributed_optimizer=True))
        perseus_ds.attach(job.schedules, config=block)
        job.run_pass = job.schedules.get_forward_backward_func()
        return job.schedules, job.step
    engine = build(config(4, perseus=block, gradient_clipping=1.0), stages=2)
    return engine, partial(engine.train_batch, batches())


def _hold_down(cap: str, *, held: bool) -> None:
    for gpu in opened_gpus():
        if cap == "clock":
            gpu.throttle(int(CAPS[cap]) if held else None)
        elif cap == "power":
            gpu.throttle(power_w=CAPS[cap] if held else None)
