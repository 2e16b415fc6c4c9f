"""Jobs of several replicas, one of which is slowed for a while, and what every iteration was like."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import events
from planned_by_physics import deepspeed_schedule, perseus_block, write_plan
from ranks import PipelineEngine, batches, build, config, run_ranks

from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.active_plan import ActivePlan
from perseus_ds.runtime.attach import session_of
from perseus_ds.runtime.status import JobStatus

Spells = Mapping[int, list[tuple[int, int, float]]]
"""For a replica: from which iteration of the plan to which, how many times slower."""

Act = Callable[[int, int], None]
"""What a test does before an iteration of the plan, on a rank."""


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
    wall_s: list[float] = field(default_factory=list)
    attached: bool = False
    seen: JobStatus | None = None
    spent_j: float = 0.0

    def begin(self, engine: PipelineEngine) -> ActivePlan | None:
        """Note what the coming iteration is run by, if it is run by a plan."""
        session = session_of(engine)
        active_plan = None if session is None else session.active_plan
        if session is not None and active_plan is not None:
            if not self.plans:
                self.seen = active_plan.observed
            self.plans.append(list(active_plan.plans))
            self.modes.append(session.settings.mode)
        return active_plan

    def end(self, active_plan: ActivePlan | None) -> None:
        """Note how the iteration ended, and what was exchanged about the one before."""
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
    act: Act | None = None,
    act_on: Callable[[PipelineEngine, int], None] | None = None,
    slow_stage: int | None = None,
) -> Book:
    """Train so many iterations at the plan; ``slow_stage`` slows one stage of a replica alone.

    ``act_on`` does something with the engine before an iteration of the plan.
    """
    book = Book()
    engine = build(content, stages=stages)
    replica = engine.grid.get_data_parallel_rank()
    mine = spells.get(replica, []) if slow_stage in (None, engine.stage_id) else []
    data = batches()
    while len(book.plans) < iterations:
        if act is not None:
            act(rank, len(book.plans))
        if act_on is not None:
            act_on(engine, len(book.plans))
        for gpu in opened_gpus():
            gpu.slowness = slowness(mine, len(book.plans))
        active_plan = book.begin(engine)
        began_s = time.monotonic()
        book.losses.append(float(engine.train_batch(data)).hex())
        book.wall_s.append(time.monotonic() - began_s)
        book.end(active_plan)
    book.attached = "_exec_schedule" in vars(engine)
    return book


def slowness(spells: Sequence[tuple[int, int, float]], iteration: int) -> float:
    """How many times slower everything on a GPU is, for no reason that it gives."""
    return next((factor for start, end, factor in spells if start <= iteration < end), 1.0)


def look_once(rank: int, content: Mapping[str, Any], stages: int) -> None:
    """Attach, so that the journal tells the job's fingerprint."""
    build(content, stages=stages).train_batch(batches())


def planned_job(
    folder: Path,
    *,
    ranks: int,
    forward_s: tuple[float, ...],
    perseus: Mapping[str, Any] | None = None,
    profiled: bool = False,
    **settings: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Write the plan of a job, and where wanted its profile; return the job's configuration."""
    block = perseus_block(folder / "run", forward_s, **(perseus or {}))
    seen = block | {"mode": "observe", "run_dir": str(folder / "seen")}
    settings = {"gradient_clipping": 1.0, **settings}
    run_ranks(ranks, look_once, config(perseus=seen, **settings), len(forward_s))
    fingerprint = events(folder / "seen")[0]["fingerprint"]
    schedule = deepspeed_schedule(microbatches=4, stages=len(forward_s))
    profile_path = folder / "run" / "profile.json" if profiled else None
    write_plan(folder / "run" / "plan.json", schedule, forward_s, fingerprint, profile_path=profile_path)
    return config(perseus=block, **settings)
