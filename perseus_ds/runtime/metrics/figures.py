"""What a rank has to report just now, read from what its session keeps anyway."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.device.clock_agenda import AskedClocks, RequestCounts
from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceError
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import Summary
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.measure.energy.energy_watch import EnergyWatch
from perseus_ds.runtime.metrics.metric import Labels, Metric, MetricSample
from perseus_ds.runtime.observe.rank_report import RankBooks

_HERTZ = 1_000_000
_LIMIT_EVERY_S = 15.0  # half a dozen calls to the driver


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the numbers stand. All are written by other threads and only read here.

    ``iteration`` returns the index of the present iteration, ``active_plan`` the plan in force. ``summaries``
    returns what was measured by the size of the batches (rank 0 alone).
    """

    gpu: Gpu
    watch: EnergyWatch
    books: RankBooks
    asked: AskedClocks
    counts: Callable[[], RequestCounts]
    iteration: Callable[[], int]
    active_plan: Callable[[], ActivePlan | None]
    summaries: Mapping[int, Summary]


class RankMetrics:
    """All samples of one rank; those of the job come from rank 0 alone.

    One thread calls `turn` now and then: it adds up what the plan has saved, and looks at the power limit.
    """

    def __init__(
        self,
        job: Job,
        directory: RunDirectory,
        sources: Sources,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first = job.rank == 0
        self._profile = directory.profile
        self._sources = sources
        self._saved_j = self._saved_error_j = 0.0
        self._counted: dict[int, int] = {}
        self._now_s = now_s
        self._limit_w, self._limit_read_s = _power_limit_w(sources.gpu), now_s()
        self.labels = labels_of(job, directory.path, uuid=sources.gpu.identify().uuid)

    def turn(self) -> None:
        """Add what iterations at the plan have saved since the last turn, once both sides are measured."""
        self._sources.watch.catch_up()
        for size, iterations in dict(self._sources.books.at_plan).items():
            summary = self._sources.summaries.get(size)
            if self._first and summary is not None:
                fresh, self._counted[size] = iterations - self._counted.get(size, 0), iterations
                each_j = summary.baseline.energy_j
                self._saved_j += fresh * each_j * summary.saving_pct / 100.0
                self._saved_error_j += fresh * each_j * (summary.saving_within_pct or 0.0) / 100.0
        if self._now_s() >= self._limit_read_s + _LIMIT_EVERY_S:
            self._limit_w, self._limit_read_s = _power_limit_w(self._sources.gpu), self._now_s()

    def samples(self) -> list[MetricSample]:
        """Return what holds now; what is not known is left out."""
        own = [*self._of_gpu(), *self._of_clock()]
        return [*own, *self._of_job(), *self._of_plan()] if self._first else own

    def _of_gpu(self) -> Iterator[MetricSample]:
        yield MetricSample(Metric.ENERGY, self._sources.watch.taken_j)
        latest = self._sources.books.latest
        if latest is not None:
            yield MetricSample(Metric.ITERATION_ENERGY, latest[0])
            yield MetricSample(Metric.POWER, latest[1])
        if self._limit_w is not None:
            yield MetricSample(Metric.POWER_LIMIT, self._limit_w)
        for sighting in self._sources.gpu.conflicts():
            yield MetricSample(Metric.CONFLICTS, sighting.count, {"kind": sighting.kind.name.lower()})

    def _of_clock(self) -> Iterator[MetricSample]:
        source = self._sources
        counts = source.counts()
        clocks = (
            (Metric.REQUESTED, source.asked.latest_mhz),
            (Metric.ACHIEVED, source.watch.latest_clock_mhz),
        )
        for metric, clock_mhz in clocks:
            if clock_mhz is not None:
                yield MetricSample(metric, clock_mhz * _HERTZ)
        yield MetricSample(Metric.REQUESTS, counts.changes)
        yield MetricSample(Metric.LATE, counts.late)
        yield MetricSample(Metric.OVERTAKEN, counts.overtaken)
        yield MetricSample(Metric.CONTROL, source.gpu.in_control())

    def _of_job(self) -> Iterator[MetricSample]:
        yield MetricSample(Metric.RUNNING, 1)
        yield MetricSample(Metric.ITERATIONS, self._sources.iteration())
        yield MetricSample(Metric.SAVED, self._saved_j)
        yield MetricSample(Metric.SAVED_ERROR, self._saved_error_j)
        for size, summary in dict(self._sources.summaries).items():
            yield from _measured(summary, {"microbatches": str(size)})
        age_s = _age_s(self._profile)
        if age_s is not None:
            yield MetricSample(Metric.PROFILE_AGE, age_s)

    def _of_plan(self) -> Iterator[MetricSample]:
        present = self._sources.active_plan()
        if present is None:
            return
        yield MetricSample(Metric.PLAN, present.plan)
        yield MetricSample(Metric.PLANS, present.choices)
        yield MetricSample(Metric.PLANNED_TIME, present.objective_s)
        observed = present.observed
        if observed is not None and observed.iteration_s is not None:
            yield MetricSample(Metric.ITERATION_TIME, observed.iteration_s)
        if present.sync_time_s is not None:
            yield MetricSample(Metric.SYNC_TIME, present.sync_time_s)
        for straggler, gpus in present.awaited:
            named = {
                "straggler_replica": str(straggler.replica),
                "straggler_host": " ".join(sorted({gpu.host for gpu in gpus})),
                "straggler_gpu": " ".join(gpu.gpu for gpu in gpus),
                "cause": straggler.cause.value,
            }
            yield MetricSample(Metric.STRAGGLER, straggler.slowdown, named)


def labels_of(job: Job, run_dir: Path, *, uuid: str) -> Labels:
    """Name a GPU and its job as an operator's other tools do; DCGM calls ``gpu_uuid`` its ``UUID``."""
    slurm = os.environ.get("SLURM_JOB_ID")
    host = job.addresses[job.rank].host if job.addresses else os.uname().nodename
    of_job = {
        "job": run_dir.resolve().name,
        "host": host,
        **({"slurm_job_id": slurm} if slurm else {}),
    }
    stages = sorted({instruction.stage for instruction in job.order})
    of_gpu = {
        "replica": str(job.replica),
        "stage": ",".join(map(str, stages)),
        "rank": str(job.rank),
        "gpu_uuid": uuid,
    }
    return Labels(gpu={**of_job, **of_gpu}, job=of_job)


def _measured(summary: Summary, size: Mapping[str, str]) -> Iterator[MetricSample]:
    percents = (
        (Metric.SAVING, summary.saving_pct),
        (Metric.SAVING_ERROR, summary.saving_within_pct),
        (Metric.SLOWDOWN, summary.slowdown_pct),
        (Metric.SLOWDOWN_ERROR, summary.slowdown_within_pct),
    )
    for metric, percent in percents:
        if percent is not None:
            yield MetricSample(metric, percent / 100.0, size)


def _age_s(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None


def _power_limit_w(gpu: Gpu) -> float | None:
    try:
        settings = gpu.operator_settings()
    except DeviceError:
        return None
    return None if settings is None else settings.limit_w
