"""Metrics of a rank, read from what its session keeps anyway."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

from perseus_ds.device.clock_agenda import RequestCounts
from perseus_ds.device.clock_change import AskedClocks
from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import ConfigError, DeviceError, PerseusError
from perseus_ds.run_directory.paths import RunDirectory, write_whole
from perseus_ds.run_directory.records import Summary
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.phases import ActivePlan
from perseus_ds.runtime.threads import HostThreads

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

# Every metric by name, and samples of them.


class Metric(Enum):
    """Metrics in base units: the name's end (``_total`` of a counter) and its meaning."""

    ENERGY = "gpu_energy_joules_total", "Energy that the GPU took since the process started."
    POWER = "gpu_power_watts", "Mean power of the GPU in the iterations measured last."
    ITERATION_ENERGY = "gpu_iteration_energy_joules", "Energy of the GPU in one of these iterations."
    REQUESTED = "gpu_requested_clock_hertz", "Core clock that was requested last; absent at default clocks."
    ACHIEVED = "gpu_achieved_clock_hertz", "Core clock that was read last."
    REQUESTS = "gpu_clock_changes_total", "Changes of clock that reached the driver."
    LATE = "gpu_late_clock_changes_total", "Changes of clock that reached the driver late."
    OVERTAKEN = "gpu_overtaken_clock_requests_total", "Requests that a later one overtook at their moment."
    CONTROL = "gpu_clock_control", "1 while requested clocks are set, 0 while they are not."
    CONFLICTS = "gpu_conflicts_total", "Sightings of others at work on the GPU's clock or power."
    POWER_LIMIT = "gpu_power_limit_watts", "Power limit that the driver enforces."
    RUNNING = "running", "1 while the job runs, 0 after its end."
    ITERATIONS = "iterations_total", "Training iterations since the process started."
    ITERATION_TIME = "iteration_time_seconds", "Duration of the last iteration, of the slowest rank."
    PLAN = "plan", "Number of the plan in force; 0 is the fastest."
    PLANS = "plans", "How many plans there are."
    PLANNED_TIME = "planned_iteration_time_seconds", "Iteration time that the objective's plan predicts."
    SYNC_TIME = "sync_time_seconds", "Iteration time T' that replicas aim at beside a straggler; else absent."
    STRAGGLER = "straggler_slowdown_ratio", "How many times longer a straggler takes than its peers."
    SAVED = (
        "energy_saved_joules",
        "Energy that plans saved since the process started, all GPUs, as measured.",
    )
    SAVED_ERROR = "energy_saved_error_joules", "Half of the 95 % interval of energy_saved_joules."
    SAVING = "saving_ratio", "Share of an iteration's energy that the plan saves, as measured."
    SAVING_ERROR = "saving_error_ratio", "Half of the 95 % interval of saving_ratio."
    SLOWDOWN = "slowdown_ratio", "Share by which an iteration lasts longer at the plan, as measured."
    SLOWDOWN_ERROR = "slowdown_error_ratio", "Half of the 95 % interval of slowdown_ratio."
    PROFILE_AGE = "profile_age_seconds", "Time since the profile was written."

    def __init__(self, ending: str, text: str) -> None:
        self.title = f"perseus_{ending}"
        self.text = text
        self.is_counter = ending.endswith("_total")
        self.of_gpu = ending.startswith("gpu_")


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A value of a metric; ``labels`` beside those of its GPU, or of the job."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that all samples of a GPU have in common, and all of the job."""

    gpu: Mapping[str, str]
    job: Mapping[str, str]

    def of(self, sample: MetricSample) -> dict[str, str]:
        return {**(self.gpu if sample.metric.of_gpu else self.job), **sample.labels}


_HERTZ = 1_000_000
_LIMIT_EVERY_S = 15.0  # half a dozen calls to the driver


@dataclass(frozen=True, slots=True)
class Sources:
    """Objects that hold the numbers: written by other threads, and only read here.

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

    One thread calls `update` now and then.
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

    def update(self) -> None:
        """Add what iterations at the plan saved, once both sides are measured; read the power limit."""
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
            yield from _summary_samples(summary, {"microbatches": str(size)})
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


def _summary_samples(summary: Summary, size: Mapping[str, str]) -> Iterator[MetricSample]:
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


# A rank's samples through prometheus_client (the extra ``metrics``): as text, and served to scrapes.


class _Collector:
    """Answers each scrape with the samples of that moment."""

    def __init__(self, samples: Callable[[], Sequence[MetricSample]], labels: Labels) -> None:
        self._samples = samples
        self._labels = labels

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return one family for each metric that has finite values."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415  # an extra

        rows: dict[Metric, list[MetricSample]] = {}
        for one in self._samples():
            if math.isfinite(one.value):
                rows.setdefault(one.metric, []).append(one)
        for metric, samples in rows.items():
            kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            known = [self._labels.of(one) for one in samples]
            family = kind(metric.title, metric.text, labels=list(known[0]))
            for one, labels in zip(samples, known, strict=True):
                family.add_metric(list(labels.values()), one.value)
            yield family


def text_of(samples: Sequence[MetricSample], labels: Labels) -> bytes:
    """Return samples in the text format that node_exporter's collector reads."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  # an extra

    registry = CollectorRegistry()
    registry.register(_Collector(lambda: samples, labels))
    return bytes(generate_latest(registry))


def serve(port: int, samples: Callable[[], Sequence[MetricSample]], labels: Labels) -> Callable[[], None]:
    """Serve from a thread of its own; return what ends it.

    Raises:
        ConfigError: the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415  # an extra

    registry = CollectorRegistry()
    registry.register(_Collector(samples, labels))
    try:
        server, _ = start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigError(
            f"perseus.metrics.port: port {port} of this host cannot be served: {error.strerror}",
            hint="name another port; each rank of a host takes one, from metrics.port on",
        ) from error

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end


# The thread that writes a rank's numbers to a file for monitoring, and serves them on a port if asked to.

_EVERY_S = 15.0
_PATIENCE_S = 2.0
_HIGHEST_PORT = 65_535
_MOST_LINES = 8
_LASTING = (Metric.SAVED, Metric.SAVED_ERROR)  # gauges that still hold after the end of a job


class Publisher:
    """Writes ``path`` for node_exporter's textfile collector every 15 seconds, on a thread of its own.

    A file is always whole; after the job it has what still holds. Each failure is one line.
    """

    def __init__(
        self,
        figures: RankMetrics,
        path: Path,
        *,
        say: Callable[[str], None],
        threads: HostThreads | None = None,
    ) -> None:
        threads = threads or HostThreads()
        self._figures = figures
        self._path = path
        self._say = say
        self._end_serving: Callable[[], None] | None = None
        self._logged: set[str] = set()
        self._failing = False
        self._stop = threads.queue(str)
        self._thread = threads.start(self._run, name="perseus-metrics")

    def serve(self, port: int) -> None:
        """Serve the samples on a port as well; a port that cannot be served is logged."""
        try:
            if port > _HIGHEST_PORT:
                raise ConfigError(f"perseus.metrics.port: there is no port {port}", hint="name a lower one")
            self._end_serving = serve(port, self._figures.samples, self._figures.labels)
        except PerseusError as error:
            self._say(f"metrics: {error}; files are written all the same")

    def close(self) -> None:
        """End the thread, and leave what holds after the job."""
        self._stop.put("end")
        self._thread.join(_PATIENCE_S)
        if self._end_serving is not None:
            self._end_serving()
            self._end_serving = None

    def _run(self) -> None:
        ends = False
        while not ends:
            self._publish(ends=False)
            with suppress(Empty):
                self._stop.get(timeout=_EVERY_S)
                ends = True
        self._publish(ends=True)

    def _publish(self, *, ends: bool) -> None:
        """Write the file; numbers for others are no reason to end anything."""
        try:
            self._figures.update()
            samples = self._figures.samples()
            if ends:
                samples = [one for one in samples if one.metric.is_counter or one.metric in _LASTING]
            self._write(samples)
        except Exception as error:  # noqa: BLE001  # the thread must go on
            line = f"metrics: {type(error).__name__}: {error}; training goes on"
            if line not in self._logged and len(self._logged) < _MOST_LINES:
                self._logged.add(line)
                self._say(line)

    def _write(self, samples: list[MetricSample]) -> None:
        """Replace the file; a disk that is full is logged once, and tried again."""
        failed, self._failing = self._failing, False
        try:
            write_whole(self._path, text_of(samples, self._figures.labels))
        except (OSError, PerseusError) as error:
            self._failing = True
            if not failed:
                reason = getattr(error, "strerror", None) or str(error)
                self._say(f"metrics: {self._path} is not written: {reason}; training and tries go on")
        else:
            if failed:
                self._say(f"metrics: {self._path} is written again")
