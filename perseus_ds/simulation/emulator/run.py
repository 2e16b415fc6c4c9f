"""A job under way: the state of its GPUs, and one iteration after the other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import ConfigError
from perseus_ds.simulation.emulator.cluster import idle_gpus
from perseus_ds.simulation.emulator.disturbance import Disturbance, Trouble
from perseus_ds.simulation.emulator.kernel import play_pipelines
from perseus_ds.simulation.emulator.meter import settle
from perseus_ds.simulation.emulator.program import JobProgram
from perseus_ds.simulation.emulator.records import (
    CAUSES,
    EmulatedIteration,
    Floats,
    Ints,
    PlannedRequests,
    Play,
    PowerTrace,
    Shape,
)
from perseus_ds.simulation.emulator.result import Emulated
from perseus_ds.simulation.emulator.world import Asking, World
from perseus_ds.straggler import StragglerDecision


class JobRun:
    """GPUs, clocks and books of one job; use it as a context, it has threads."""

    def __init__(self, world: World, iterations: int) -> None:
        if iterations < 1:
            raise ConfigError(f"{iterations} iterations do not make a job", hint="at least 1")
        cluster, ranks = world.cluster, world.job.ranks
        self._world = world
        self._count = cluster.gpus(ranks)
        self._top = len(world.tables.clock_mhz) - 1
        self._gpus = idle_gpus(self._count, per_node=cluster.gpus_per_node, clock=self._top)
        self._pool = ThreadPoolExecutor(world.conditions.threads)
        self._traces = [_trace(world, iterations) for _ in range(world.conditions.threads)]
        self._start_s = np.zeros((cluster.pipelines, ranks))
        self._random = np.random.default_rng(world.conditions.seed)
        self._known = np.ones(cluster.pipelines, dtype=np.bool_)
        self._now: EmulatedIteration | None = None
        self._job_s = np.zeros(iterations)
        self._own_s = np.full((iterations, cluster.pipelines), np.nan)
        self._plan = np.zeros((iterations, cluster.pipelines), dtype=np.int64)
        self._energy_j = np.zeros((iterations, len(CAUSES)))
        self._changes = np.zeros(iterations, dtype=np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def iterate(self, n: int, plans: Sequence[Asking], troubles: Sequence[Disturbance]) -> None:
        """Run iteration ``n`` of all pipelines up to their common release."""
        world = self._world
        other = world.conditions.microbatches.get(n, world.plans.schedule.microbatches)
        if other == world.plans.schedule.microbatches:
            used = tuple(sorted(set(plans)))
            job, requests = world.job, world.requests(used)
            place = np.array([used.index(plan) for plan in plans], dtype=np.int64)
        else:
            (job, requests), place = world.other(other), np.zeros(len(plans), dtype=np.int64)
        self._known[:] = other == world.plans.schedule.microbatches
        before_j, before = self._gpus.energy_j.sum(axis=0), int(self._gpus.changes.sum())
        now = self._now = self._iteration(n, job, place, troubles)
        self._play(job, requests, now)
        met_s = self._met_s(job, now)
        released_s = float((met_s + job.reduction_s).max()) + job.step_s  # all meet for the norm
        release_s = np.broadcast_to(released_s, now.arrival_s.shape).copy()
        everyone = self._with(job, requests, 0, world.cluster.pipelines, self._traces[0])
        settle(everyone, now.cap, release_s.ravel())
        self._plan[n] = [plan for plan, _ in plans]
        alive = now.alive
        arrival_s = now.arrival_s[alive, 0] if job.by_rank else now.arrival_s[alive].max(axis=1)
        self._own_s[n, alive] = arrival_s - now.start_s[alive, 0] + released_s[0] - met_s[0]
        self._job_s[n] = float((release_s - self._start_s)[:, 0].max())
        self._energy_j[n] = self._gpus.energy_j.sum(axis=0) - before_j
        self._changes[n] = int(self._gpus.changes.sum()) - before
        self._start_s = release_s

    def observed(self, n: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Return what ranks inform each other of iteration ``n``: own times (NaN: unknown), who is capped."""
        assert self._now is not None
        return np.where(self._known, self._own_s[n], np.nan), self._now.capped

    def result(self, decisions: tuple[StragglerDecision, ...], *, answers_cost_pct: float = 0.0) -> Emulated:
        """Close the books."""
        assert self._now is not None
        begun_s = float(self._now.start_s.min())
        trace = PowerTrace(self._traces[0].bin_s, np.sum([trace.energy_j for trace in self._traces], axis=0))
        return Emulated(
            job=self._world.job,
            gpus=self._count,
            job_s=self._job_s,
            own_s=self._own_s,
            plan=self._plan,
            energy_j=self._energy_j,
            changes=self._changes,
            decisions=decisions,
            trace=trace,
            begun_s=self._now.begun_s - begun_s,
            ended_s=self._now.ended_s - begun_s,
            answers_cost_pct=answers_cost_pct,
        )

    def _iteration(
        self, n: int, job: JobProgram, place: NDArray[np.int64], troubles: Sequence[Disturbance]
    ) -> EmulatedIteration:
        cluster, conditions = self._world.cluster, self._world.conditions
        shape = (cluster.pipelines, len(job.nodes))
        noise = (
            conditions.noise * self._random.standard_normal(shape) if conditions.noise else np.zeros(shape)
        )
        loaded = self._world.load_factors(job, n)
        now = EmulatedIteration(
            plan=place,
            alive=np.ones(cluster.pipelines, dtype=np.bool_),
            input_s=np.zeros(cluster.pipelines),
            factor=np.maximum(0.05, 1.0 + noise) * conditions.work[n % len(conditions.work)] * loaded,
            slow=np.ones(self._count),
            cap=np.full(self._count, self._top, dtype=np.int64),
            start_s=self._start_s,
            link_s=np.zeros((cluster.pipelines, job.ranks)),
            arrival_s=np.zeros((cluster.pipelines, job.ranks)),
            capped=np.zeros(cluster.pipelines, dtype=np.bool_),
            begun_s=np.full(shape, np.nan),
            ended_s=np.full(shape, np.nan),
        )
        for one in troubles:
            _beset(now, one, cluster.tensor, self._world.tables.clock_mhz)
        return now

    def _play(self, job: JobProgram, requests: PlannedRequests, now: EmulatedIteration) -> None:
        islands = self._world.cluster.islands(job.ranks)
        threads = len(self._traces)

        def part(thread: int) -> None:
            for first, end in islands[thread::threads]:
                play_pipelines(self._with(job, requests, first, end, self._traces[thread]), now)

        list(self._pool.map(part, range(threads)))

    def _with(
        self, job: JobProgram, requests: PlannedRequests, first: int, end: int, trace: PowerTrace
    ) -> Play:
        world = self._world
        shape = Shape(first, end, job.ranks, world.cluster.tensor, world.cluster.gpus_per_node)
        return Play(shape, job.program, world.tables, world.change, requests, self._gpus, trace)

    def _met_s(self, job: JobProgram, now: EmulatedIteration) -> Floats:
        """When each rank has met its peers of the other pipelines, or all have met the last of all."""
        if not now.alive.any():
            raise ConfigError("all pipelines are lost at once", hint="leave one that goes on")
        arrived = now.arrival_s[now.alive]
        met_s: Floats = arrived.max(axis=0) if job.by_rank else np.full(job.ranks, arrived.max())
        return met_s


def _trace(world: World, iterations: int) -> PowerTrace:
    """Room for twice the time that the job needs if nothing goes wrong."""
    bin_s = world.conditions.trace_bin_s
    if bin_s <= 0.0:
        return PowerTrace(1.0, np.zeros(0))
    longest_s = 2.0 * iterations * float(world.plans.iteration_time_s[-1])
    return PowerTrace(bin_s, np.zeros(int(longest_s / bin_s) + 1))


def _beset(now: EmulatedIteration, one: Disturbance, tensor: int, clocks_mhz: Ints) -> None:
    """Write one trouble into the iteration."""
    by_place = (*now.link_s.shape, tensor)
    where = (one.pipeline, *(slice(None) if part is None else part for part in (one.rank, one.gpu)))
    if one.trouble is Trouble.SLOW:
        now.slow.reshape(by_place)[where] *= one.amount
    elif one.trouble is Trouble.CAP:
        highest = max(0, int(np.searchsorted(clocks_mhz, one.amount, side="right")) - 1)
        now.cap.reshape(by_place)[where] = np.minimum(now.cap.reshape(by_place)[where], highest)
    elif one.trouble is Trouble.LINK:
        now.link_s[where[:2]] += one.amount
    elif one.trouble is Trouble.INPUT:
        now.input_s[one.pipeline] += one.amount
    elif one.trouble is Trouble.LOST:
        now.alive[one.pipeline] = False
