"""Jobs of several replicas, one of which is slowed for a while, and what every iteration was like."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Gpus, events, watched_gpus
from ranks import batches, build, config, run_ranks
from virtual import carry_time, deepspeed_schedule, in_virtual_time, perseus_block, write_plan

from perseus_ds.device.simulated import SimulatedGpu
from perseus_ds.runtime.comm.status import JobStatus, StatusLayout
from perseus_ds.runtime.lifecycle.phases import Running
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.runtime.measure.recorder import Iteration

FlapDamping = Mapping[int, list[tuple[int, int, float]]]
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
    plans: list[list[int]] = field(default_factory=list)
    modes: list[Mode] = field(default_factory=list)
    own_s: list[list[float]] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    attached: bool = False


def keep_book(gpus: Gpus) -> Book:
    """Look over the shoulder of the running phase of this (forked) process."""
    book = Book()
    following, job_status = Running.following, StatusLayout.job_status
    last_j = [0.0]

    def note(phase: Running, index: int, passed: list[Iteration], announced: JobStatus | None) -> object:
        truth = gpus.made[-1].true_now()
        book.plans.append([int(plan) for plan in phase._active_plan.plans])
        book.modes.append(phase.mode)
        book.energy_j.append(truth.energy_j - last_j[0])
        book.end_s.append(gpus.made[-1].now_s())
        last_j[0] = truth.energy_j
        return following(phase, index, passed, announced)

    def hear(layout: StatusLayout, numbers: np.ndarray) -> JobStatus:
        found = job_status(layout, numbers)
        if found.replicas is not None and book.plans:
            book.own_s.append(found.replicas.own_s.tolist())
            book.duration_s.append(found.iteration_s or float("nan"))
        return found

    Running.following = note  # type: ignore[assignment, method-assign]  # in a process of the test's own
    StatusLayout.job_status = hear  # type: ignore[method-assign]
    return book


def hinder(slowness: Callable[[], float]) -> None:
    """Make everything on this process's GPU take longer, at full clocks and for no reason that it gives."""
    begin = SimulatedGpu.begin

    def slower(gpu: SimulatedGpu, work: Any) -> Any:  # noqa: ANN401
        return begin(gpu, work.scaled(slowness()))

    SimulatedGpu.begin = slower  # type: ignore[method-assign]


def straggle(
    rank: int,
    content: Mapping[str, Any],
    stages: int,
    spells: FlapDamping,
    iterations: int,
    *,
    virtual: bool = True,
    act: Act | None = None,
    slow_stage: int | None = None,
) -> Book:
    """Train so many iterations at the plan; ``slow_stage`` slows one stage of a replica alone."""
    clock = in_virtual_time() if virtual else None
    gpus = watched_gpus()
    book = keep_book(gpus)
    engine = build(content, stages=stages)
    if clock is not None:
        carry_time(engine, clock)
    replica = engine.grid.get_data_parallel_rank()
    mine = spells.get(replica, []) if slow_stage in (None, engine.stage_id) else []

    def slow() -> float:
        return next((factor for start, end, factor in mine if start <= len(book.plans) < end), 1.0)

    hinder(slow)
    data = batches()
    while len(book.plans) < iterations:
        if act is not None:
            act(rank, len(book.plans))
        began_s = time.monotonic()
        book.losses.append(float(engine.train_batch(data)).hex())
        book.wall_s.append(time.monotonic() - began_s)
    book.attached = "_exec_schedule" in vars(engine)
    return book


def look_once(rank: int, content: Mapping[str, Any], stages: int) -> None:
    """Attach, so that the journal tells the job's fingerprint."""
    in_virtual_time()
    build(content, stages=stages).train_batch(batches())


def planned_job(
    folder: Path,
    *,
    ranks: int,
    forward_s: tuple[float, ...],
    perseus: Mapping[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Write the plan of a job into its run directory and return its configuration."""
    block = perseus_block(folder / "run", forward_s, **(perseus or {}))
    seen = block | {"mode": "observe", "run_dir": str(folder / "seen")}
    settings = {"gradient_clipping": 1.0, **settings}
    run_ranks(ranks, look_once, config(perseus=seen, **settings), len(forward_s))
    fingerprint = events(folder / "seen")[0]["fingerprint"]
    schedule = deepspeed_schedule(microbatches=4, stages=len(forward_s))
    write_plan(folder / "run" / "plan.json", schedule, forward_s, fingerprint)
    return config(perseus=block, **settings)
