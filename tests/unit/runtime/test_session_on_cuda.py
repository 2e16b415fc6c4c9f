"""A session on the strict double, its host an iteration ahead: clocks, marks and energy together."""

import gc
import resource
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from fake_cuda import CONTEXT_BYTES, FakeCuda
from lone_job import logging_in
from personality_gpu import Character, PersonalityGpu
from virtual_host import VirtualHost

from perseus_ds.device.gpu import Capabilities
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.accounting import Mode, RankBooks
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.clocks import DEFAULT_CLOCK, Ask, ClockSchedule, ClockSequencer, ClockThread
from perseus_ds.runtime.cuda_timer import CudaStopwatch
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.phases import IterationSettings, Phase
from perseus_ds.runtime.plans import StartAction, StartDecision
from perseus_ds.runtime.recorder import Iteration, Recorder
from perseus_ds.runtime.session import Session
from perseus_ds.runtime.status import ConflictMonitor, JobStatus
from perseus_ds.schedule import Instruction, Kind

HOUR_S = 3600.0
TOP_MHZ, LOW_MHZ = 1980, 990
ORDER = tuple(Instruction(0, kind, n) for kind in (Kind.FORWARD, Kind.BACKWARD) for n in range(4))
SLOW = ClockSchedule((Ask(TOP_MHZ),), ((),) * 8, ((),) * 3 + ((Ask(LOW_MHZ),),) + ((),) * 4)
"""Forwards at the top clock, backwards at half of it."""
BATCH = Batch(4)
SAMPLES = 1000
"""The most samples that a side keeps."""


class JobGpu(PersonalityGpu):
    """Sets the double's clock; takes 100 W and a quarter of a watt per megahertz."""

    def __init__(self, host: VirtualHost, cuda: FakeCuda, character: Character) -> None:
        super().__init__(host, character, self._power_w)
        self._device = cuda.devices[1]

    def capabilities(self) -> Capabilities:
        period_s = super().capabilities().counter_period_s
        return Capabilities((TOP_MHZ, LOW_MHZ), (1,), True, None, period_s, 0.0)

    def lock_clock(self, clock_mhz: int) -> None:
        self._device.set_clock(clock_mhz)

    def reset_clock(self) -> None:
        self._device.set_clock(TOP_MHZ)

    def _power_w(self, now_s: float) -> float:
        clock_mhz = next(mhz for since_s, mhz in reversed(self._device.clocks) if since_s <= now_s)
        return 100.0 + 0.25 * clock_mhz


class Script(Phase):
    """Ten iterations by the plan, ten at default clocks, and so on."""

    def __init__(self) -> None:
        self.passed: list[Iteration] = []
        self.steps: dict[int, Mode] = {}
        self.next(-1, [], None)

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        self.passed += passed
        following = index + 1
        planned, settles = following // 10 % 2 == 1, following % 10 < 2
        self.steps[following] = Mode.NEITHER if settles else Mode.PERSEUS if planned else Mode.BASELINE
        clocks = SLOW if planned else DEFAULT_CLOCK
        self.settings = IterationSettings(clocks, self.steps[following])
        return self


class CudaJob:
    def __init__(self, host: VirtualHost, folder: Path, *, character: Character | None = None) -> None:
        self.host = host
        self.cuda = FakeCuda(host, devices=2, ppm=50.0, offset_s=1e6)
        self.cuda.set_device(1)
        gpu = JobGpu(host, self.cuda, character or Character())
        self.stopwatch = CudaStopwatch(gpu, cuda=self.cuda, threads=host)
        self.watch = EnergyWatch(gpu, threads=host)
        self.requests = ClockThread(gpu, threads=host, enter=self.stopwatch.enter_thread)
        log = logging_in(folder)
        monitor = ConflictMonitor(gpu, log, rank=0, directory=RunDirectory(folder))
        counts = self.requests.counts
        self.books = RankBooks(
            self.watch, sightings=monitor.sightings, overrun_share=lambda: 0.0, clock_requests=counts
        )
        self.script = Script()
        context = MagicMock(log=log)
        context.config.on_error, context.config.profile.warmup_iterations = "raise", 1
        job = SimpleNamespace(
            order=ORDER, left_out=frozenset(), schedule=SimpleNamespace(microbatches=BATCH.microbatches)
        )
        plans = SimpleNamespace(jobs={BATCH.microbatches: job}, loads_known={}, planner=None, taken=0)
        self.session = Session(
            context,
            StartDecision(StartAction.RUN, "the script"),
            self.script,
            requests=self.requests,
            status_exchange=SimpleNamespace(turn=lambda *_, **__: None),
            plans=plans,
            recorder=Recorder(self.stopwatch, ORDER),
            sequencer=ClockSequencer(self.requests, gpu.now_s, moment=self.stopwatch.moment),
            device=SimpleNamespace(holder=None, take=lambda _: False),
            books=self.books,
            conflict_monitor=monitor,
            undo=(),
        )
        self.watch.start()

    def iteration(self, work_s: float, *, within: Callable[[], object] = lambda: None) -> None:
        assert self.session.iteration_begins(BATCH)
        for one in ORDER:
            self.session.before(one.kind)
            self.host.python(1e-3)
            self.cuda.launch(work_s)
            if one == ORDER[2]:
                within()
            self.session.after(one.kind)
        self.session.iteration_ends()

    def side(self, mode: Mode) -> tuple[float, float]:
        samples = self.books.totals[BATCH.microbatches][mode].samples
        return float(samples["time_s"].mean()), float(samples["energy_j"].mean())

    def close(self) -> None:
        self.requests.close()
        self.watch.close()
        self.stopwatch.close()


@pytest.mark.thorough
def test_a_plan_runs_and_both_sides_are_measured_as_they_were(host: VirtualHost, tmp_path: Path) -> None:
    job = CudaJob(host, tmp_path)

    def captured() -> None:
        with job.cuda.graph() as graph:
            job.cuda.launch(0.01)
            host.python(0.02)
        graph.replay()

    for n in range(200):
        job.iteration(0.1, within=captured if n in {0, 77} else lambda: None)
        if n == 120:
            job.cuda.devices[1].suspend(30.0)
    counts = job.cuda.counts
    assert counts.broken == 0
    assert max(counts.spun_s.values(), default=0.0) <= 1e-3
    assert [gpu.context_bytes for gpu in job.cuda.devices] == [0, CONTEXT_BYTES]
    assert job.requests.counts.overtaken == 0
    assert job.requests.counts.longest_late_s < 0.008, "the interpreter's switch interval, and little more"
    assert 1 <= sum(one.void for one in job.script.passed) <= 4
    for one in job.script.passed:
        if one.void or one.index % 10 < 2:
            continue
        planned = job.script.steps[one.index] is Mode.PERSEUS
        took_s = [interval.duration_s for interval in one.intervals]
        assert took_s[:3] == pytest.approx([0.1] * 3, abs=6e-3)
        assert took_s[4:] == pytest.approx([0.2 if planned else 0.1] * 4, abs=6e-3)
    assert job.side(Mode.BASELINE) == (pytest.approx(0.8, rel=0.01), pytest.approx(0.8 * 595.0, rel=0.02))
    spent_j = 0.4 * 595.0 + 0.8 * 347.5
    assert job.side(Mode.PERSEUS) == (pytest.approx(1.2, rel=0.01), pytest.approx(spent_j, rel=0.02))
    job.close()
    assert job.cuda.devices[1].clock_mhz == TOP_MHZ


@pytest.mark.slow
@pytest.mark.thorough
def test_three_days_change_neither_memory_nor_figures(host: VirtualHost, tmp_path: Path) -> None:
    """72 hours in virtual time: long iterations, and a counter that moves every minute."""
    job = CudaJob(host, tmp_path, character=Character(period_s=60.0, looks=1.0))

    def until(hour: float) -> tuple[int, int]:
        while host.now_s() < hour * HOUR_S:
            job.iteration(20.0)
            job.script.passed.clear()
            job.script.steps.clear()
        gc.collect()
        events = job.cuda.counts.events_alive
        return tracemalloc.get_traced_memory()[0], events

    until(6.0)
    tracemalloc.start()
    try:
        first_b, events = until(36.0)
        last_b, later = until(72.0)
    finally:
        tracemalloc.stop()
    resident_b = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert last_b - first_b <= min(0.01 * resident_b, 2 * SAMPLES * 300), "no more than books that fill up"
    assert later <= events + 4
    time_s, energy_j = job.side(Mode.PERSEUS)
    assert time_s == pytest.approx(240.0, rel=0.002)
    assert energy_j == pytest.approx(80.0 * 595.0 + 160.0 * 347.5, rel=0.01)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 100_000
