"""Metrics of a rank, read from what its session keeps anyway."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceError
from perseus_ds.run_directory.paths import RunDirectory, write_whole
from perseus_ds.run_directory.records import Summary
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.clocks import ClockThread
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.phases import ActivePlan
from perseus_ds.runtime.threads import HostThreads

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


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
    RUNNING = "running", "1 while the job runs, absent after its end."
    ITERATIONS = "iterations_total", "Training iterations since the process started."
    ITERATION_TIME = "iteration_time_seconds", "Duration of the last iteration, of the slowest rank."
    PLAN = "plan", "Number of the plan in force; 0 is the fastest."
    PLANS = "plans", "How many plans there are."
    PLANNED_TIME = "planned_iteration_time_seconds", "Iteration time that the objective's plan predicts."
    SYNC_TIME = "sync_time_seconds", "Iteration time T' that replicas aim at beside a straggler; else absent."
    STRAGGLER = "straggler_slowdown_ratio", "How many times longer a straggler takes than its peers."
    SAVED = "energy_saved_joules", "Energy that plans saved since the process started, all GPUs, as measured."
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


_Row = tuple[Metric, float | None, Mapping[str, str]]
_LASTING = (Metric.SAVED, Metric.SAVED_ERROR)  # gauges that still hold after the end of a job
_HERTZ = 1_000_000
_LIMIT_EVERY_S = 15.0  # half a dozen calls to the driver


class RankMetrics:
    """All metrics of one rank, as prometheus_client collects them; those of the job come from rank 0 alone.

    What other threads write is only read here, by the one thread that calls `update` now and then. Once the
    job has ``ended`` only what still holds is left. ``iteration`` returns the index of the present iteration,
    ``active_plan`` the plan in force. ``summaries`` are what was measured, by the size of the batches (rank 0
    alone).
    """

    def __init__(
        self,
        job: Job,
        directory: RunDirectory,
        gpu: Gpu,
        books: RankBooks,
        requests: ClockThread,
        *,
        iteration: Callable[[], int],
        active_plan: Callable[[], ActivePlan | None],
        summaries: Mapping[int, Summary],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended = False
        self._first = job.rank == 0
        self._profile = directory.profile
        self._gpu, self._books, self._requests = gpu, books, requests
        self._iteration, self._active_plan, self._summaries = iteration, active_plan, summaries
        self._saved_j = self._saved_error_j = 0.0
        self._counted: dict[int, int] = {}
        self._now_s = now_s
        self._limit_w, self._limit_read_s = _power_limit_w(gpu), now_s()
        self.gpu_uuid, slurm = gpu.identify().uuid, os.environ.get("SLURM_JOB_ID")
        self.host = job.places[job.rank].host if job.places else os.uname().nodename
        self._of_job = {"job": directory.path.resolve().name, "host": self.host}
        self._of_job |= {"slurm_job_id": slurm} if slurm else {}
        self._of_gpu = {
            **self._of_job,
            "replica": str(job.replica),
            "stage": ",".join(map(str, sorted({instruction.stage for instruction in job.order}))),
            "rank": str(job.rank),
            "gpu_uuid": self.gpu_uuid,  # DCGM calls it ``UUID``
        }

    def update(self) -> None:
        """Add what iterations at the plan saved, once both sides are measured; read the power limit."""
        self._books.watch.catch_up()
        for size, iterations in dict(self._books.at_plan).items():
            summary = self._summaries.get(size)
            if self._first and summary is not None:
                fresh, self._counted[size] = iterations - self._counted.get(size, 0), iterations
                each_j = summary.baseline.energy_j
                self._saved_j += fresh * each_j * summary.saving_pct / 100.0
                self._saved_error_j += fresh * each_j * (summary.saving_within_pct or 0.0) / 100.0
        if self._now_s() >= self._limit_read_s + _LIMIT_EVERY_S:
            self._limit_w, self._limit_read_s = _power_limit_w(self._gpu), self._now_s()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield a family for each metric that has a value now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415  # an extra

        families: dict[Metric, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric, value, own in [*self._rows_of_gpu(), *(self._rows_of_job() if self._first else ())]:
            lasts = metric.is_counter or metric in _LASTING
            if value is None or not math.isfinite(value) or (self.ended and not lasts):
                continue
            labels = {**(self._of_gpu if metric.of_gpu else self._of_job), **own}
            if metric not in families:
                kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                families[metric] = kind(metric.title, metric.text, labels=list(labels))
            families[metric].add_metric(list(labels.values()), value)
        yield from families.values()

    def _rows_of_gpu(self) -> Iterator[_Row]:
        watch, counts = self._books.watch, self._requests.counts
        latest_j, latest_w = self._books.latest or (None, None)
        yield Metric.ENERGY, watch.taken_j, {}
        yield Metric.ITERATION_ENERGY, latest_j, {}
        yield Metric.POWER, latest_w, {}
        yield Metric.POWER_LIMIT, self._limit_w, {}
        for sighting in self._gpu.conflicts():
            yield Metric.CONFLICTS, sighting.count, {"kind": sighting.kind.name.lower()}
        yield Metric.REQUESTED, _hertz(self._requests.asked.latest_mhz), {}
        yield Metric.ACHIEVED, _hertz(watch.latest_clock_mhz), {}
        yield Metric.REQUESTS, counts.changes, {}
        yield Metric.LATE, counts.late, {}
        yield Metric.OVERTAKEN, counts.overtaken, {}
        yield Metric.CONTROL, self._gpu.in_control(), {}

    def _rows_of_job(self) -> Iterator[_Row]:
        yield Metric.RUNNING, 1, {}
        yield Metric.ITERATIONS, self._iteration(), {}
        yield Metric.SAVED, self._saved_j, {}
        yield Metric.SAVED_ERROR, self._saved_error_j, {}
        for size, summary in dict(self._summaries).items():
            of_size = {"microbatches": str(size)}
            yield Metric.SAVING, _ratio(summary.saving_pct), of_size
            yield Metric.SAVING_ERROR, _ratio(summary.saving_within_pct), of_size
            yield Metric.SLOWDOWN, _ratio(summary.slowdown_pct), of_size
            yield Metric.SLOWDOWN_ERROR, _ratio(summary.slowdown_within_pct), of_size
        with suppress(OSError):
            yield Metric.PROFILE_AGE, max(0.0, time.time() - self._profile.stat().st_mtime), {}
        present = self._active_plan()
        if present is None:
            return
        yield Metric.PLAN, present.plan, {}
        yield Metric.PLANS, present.choices, {}
        yield Metric.PLANNED_TIME, present.objective_s, {}
        observed = present.observed
        yield Metric.ITERATION_TIME, None if observed is None else observed.iteration_s, {}
        yield Metric.SYNC_TIME, present.sync_time_s, {}
        for straggler, gpus in present.awaited:
            named = {
                "straggler_replica": str(straggler.replica),
                "straggler_host": " ".join(sorted({gpu.host for gpu in gpus})),
                "straggler_gpu": " ".join(gpu.gpu for gpu in gpus),
                "cause": straggler.cause.value,
            }
            yield Metric.STRAGGLER, straggler.slowdown, named


def _hertz(clock_mhz: int | None) -> int | None:
    return None if clock_mhz is None else clock_mhz * _HERTZ


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _power_limit_w(gpu: Gpu) -> float | None:
    try:
        return gpu.operator_settings().limit_w
    except DeviceError:
        return None


# The thread that writes a rank's numbers to a file for monitoring, and serves them on a port if asked to.

_EVERY_S = 15.0
_PATIENCE_S = 2.0


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
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  # an extra

        threads = threads or HostThreads()
        self._figures = figures
        self._registry = CollectorRegistry()
        self._registry.register(figures)
        self._path = path
        self._say = say
        self._server: WSGIServer | None = None
        self._failing = False
        self._stop = threads.queue(str)
        self._thread = threads.start(self._run, name="perseus-metrics")

    def serve(self, port: int) -> None:
        """Serve the metrics on a port as well, from another thread; a port that is taken is logged."""
        from prometheus_client import start_http_server  # noqa: PLC0415  # an extra

        try:
            self._server, _ = start_http_server(port, registry=self._registry)
        except (OSError, OverflowError) as error:  # there are 65535 ports
            self._say(
                f"metrics: perseus.metrics.port: port {port} of this host cannot be served: {error}; name "
                "another port (each rank of a host takes one); files are written all the same"
            )

    def close(self) -> None:
        """End the thread, and leave what holds after the job."""
        self._stop.put("end")
        self._thread.join(_PATIENCE_S)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _run(self) -> None:
        while not self._figures.ended:
            self._publish()
            with suppress(Empty):
                self._stop.get(timeout=_EVERY_S)
                self._figures.ended = True
        self._publish()

    def _publish(self) -> None:
        """Replace the file; a disk that is full is logged once, and tried again.

        Numbers for others are no reason to end anything, and the thread must go on.
        """
        from prometheus_client import generate_latest  # noqa: PLC0415  # an extra

        failed, self._failing = self._failing, True
        try:
            self._figures.update()
            write_whole(self._path, generate_latest(self._registry))
        except Exception as error:  # noqa: BLE001  # see above
            if not failed:
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                self._say(f"metrics: {self._path} is not written: {reason}; training and tries go on")
        else:
            self._failing = False
            if failed:
                self._say(f"metrics: {self._path} is written again")
