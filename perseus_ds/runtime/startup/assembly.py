"""Put a session together, and arrange for its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from perseus_ds.config.load import READ_AHEAD
from perseus_ds.device.clock_agenda import AskedClocks
from perseus_ds.device.gpu import Capabilities, is_capped
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.adapter import Adapter, InstructionListener
from perseus_ds.runtime.comm.notice_watch import NoticeWatch
from perseus_ds.runtime.comm.status import StatusExchange, StatusLayout
from perseus_ds.runtime.conflicts import KINDS, ConflictMonitor
from perseus_ds.runtime.control.clock_requests import ClockRequests
from perseus_ds.runtime.control.clock_sequencer import ClockSequencer
from perseus_ds.runtime.cuda_timer import stopwatch_for
from perseus_ds.runtime.emulation import Emulation
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.event_log import Scalars
from perseus_ds.runtime.kernel_tracing import KernelTracing
from perseus_ds.runtime.lifecycle.auditing import Audits
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.lifecycle import FirstPhases, Lifecycle
from perseus_ds.runtime.lifecycle.measuring.calibrating import Calibrator
from perseus_ds.runtime.lifecycle.measuring.sweeping import Sweeping
from perseus_ds.runtime.lifecycle.measuring.user_loads import UserLoads, given_by_all
from perseus_ds.runtime.lifecycle.planned_run import PlanWatchers
from perseus_ds.runtime.lifecycle.planning.batch_plans import BatchPlans
from perseus_ds.runtime.lifecycle.planning.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.start_decision import StartAction, StartDecision
from perseus_ds.runtime.metrics import Publisher, RankMetrics, Sources
from perseus_ds.runtime.recorder import Arrivals, Iteration, Recorder
from perseus_ds.runtime.startup.shared_device import SharedDevice
from perseus_ds.straggler.notices import Notices


class Assembly:
    """What listens, measures and asks for clocks on one rank; ``undo`` gets what ends each part.

    ``emulation`` is None on a real device.
    """

    def __init__(
        self,
        context: JobContext,
        adapter: Adapter,
        device: SharedDevice,
        undo: list[Callable[[], None]],
        *,
        emulation: Emulation | None,
    ) -> None:
        gpu, job = device.choice.gpu, context.job
        self._context = context
        self._adapter = adapter
        self._device = device
        self._undo = undo
        self._emulation = emulation
        self._stopwatch = stopwatch_for(gpu, device_type=adapter.device.type)
        undo.append(self._stopwatch.close)
        self._virtual_time = gpu.virtual_time if isinstance(gpu, SimulatedGpu) else None
        repeat = None if self._virtual_time is None else self._virtual_time.every
        self._watch = EnergyWatch(gpu, context.capabilities, repeat=repeat)
        undo.append(self._watch.close)
        self._monitor = ConflictMonitor(gpu, context.log, rank=job.rank, directory=context.directory)
        undo.append(self._monitor.write)
        self._arrivals = Arrivals(job.order, pipeline_rank=job.pipeline_rank, behind=self._stopwatch.behind)
        self._sizes = BatchSizes(adapter, job, channel=context.channel, log=context.log)

    def session(self, start: StartDecision) -> Session:
        """Build the session and install its hooks."""
        context, gpu = self._context, self._device.choice.gpu
        requests = self._device.requests(self._stopwatch.enter_thread)
        sequencer = ClockSequencer(requests, gpu.now_s, moment=self._stopwatch.moment, turns=self._device)
        reckon = partial(self._reckon, sequencer, requests)
        reckon(context.capabilities)
        books = RankBooks(
            self._watch,
            sightings=self._monitor.sightings,
            overrun_share=lambda: gpu.truth.overrun_share if isinstance(gpu, SimulatedGpu) else 0.0,
            clock_requests=requests.counts,
        )
        audits = Audits(books)
        calibrates = start.action is not StartAction.OBSERVE
        calibrator = Calibrator(context, gpu, requests, reckon) if calibrates else None
        recorder = self._recorder()
        session = Session(
            self._lifecycle(start, calibrator, audits, requests.asked),
            recorder=recorder,
            sequencer=sequencer,
            books=books,
            conflict_monitor=self._monitor,
            log=context.log,
            raises=context.config.on_error == "raise",
        )
        if context.config.metrics.enabled:
            lifecycle, summaries = session.lifecycle, audits.summaries
            self._publish(
                Sources(
                    gpu,
                    self._watch,
                    books,
                    requests.asked,
                    counts=lambda: requests.counts,
                    iteration=lambda: recorder.index,
                    active_plan=lambda: lifecycle.active_plan,
                    summaries=summaries,
                )
            )
        self._watch.start()
        self._install(session)
        for act in self._undo:
            session.on_leaving(act)
        return session

    def _reckon(self, sequencer: ClockSequencer, requests: ClockRequests, able: Capabilities) -> None:
        """Reckon with what the GPU can do, wherever a clock is asked for or energy is read."""
        sequencer.latency_s = able.switch_latency_s or 0.0
        self._device.choice.gpu.expect(call_s=able.switch_call_s, latency_s=able.switch_latency_s)
        requests.expect(able.switch_latency_s)
        self._watch.reckon(able)

    def _recorder(self) -> Recorder:
        return Recorder(
            self._stopwatch,
            self._context.job.order,
            skipped_steps=getattr(self._adapter, "skipped_steps", lambda: 0),
            adjoining=self._emulation is None and getattr(self._adapter, "adjoining", False),
        )

    def _lifecycle(
        self,
        start: StartDecision,
        calibrator: Calibrator | None,
        audits: Audits,
        asked: AskedClocks,
    ) -> Lifecycle:
        context, waits = self._context, self._virtual_time is not None
        notices = self._notice_watch()
        watchers = PlanWatchers(audits, self._arrivals)
        plans = BatchPlans(context, self._sizes, watchers, waits=waits)
        sweeping = Sweeping(context, self._watch, self._monitor)
        lifecycle = Lifecycle(
            context,
            FirstPhases(start, sweeping, calibrator),
            status_exchange=self._status_exchange(asked, notices),
            plans=plans,
            scalars=Scalars(self._adapter, context.log),
        )
        self._undo.append(lifecycle.close)
        return lifecycle

    def _publish(self, sources: Sources) -> None:
        """Leave this rank's numbers for monitoring, beside the training."""
        context, job, settings = self._context, self._context.job, self._context.config.metrics
        figures = RankMetrics(job, context.directory, sources)
        folder = context.directory.metrics if settings.folder is None else Path(settings.folder)
        path = folder / f"{figures.labels.job['host']}.rank{job.rank:05d}.prom"
        publisher = Publisher(figures, path, say=context.log.line_here)
        self._undo.append(publisher.close)
        if settings.port is not None:
            publisher.serve(settings.port + self._adapter.local_rank)

    def _capped(self, asked: AskedClocks) -> Callable[[Iteration], bool]:
        def capped(iteration: Iteration) -> bool:
            looks = self._watch.looks_between(iteration.start_s, iteration.end_s)
            return is_capped(looks, asked, settle_s=2.0 * self._context.capabilities.switch_latency_s)

        return capped

    def _notice_watch(self) -> NoticeWatch | None:
        """What looks for notices, on rank 0."""
        job, folder = self._context.job, self._context.directory.notices
        if job.rank != 0:
            return None
        notices = Notices(folder, replicas=sum(map(len, job.sets)))
        watch = NoticeWatch(notices, self._context.log, sets=job.sets)
        watch.start()
        self._undo.append(watch.close)
        return watch

    def _status_exchange(self, asked: AskedClocks, notices: NoticeWatch | None) -> StatusExchange:
        context, job = self._context, self._context.job
        replicas = job.replicas if context.config.straggler.enabled else 1
        return StatusExchange(
            context.channel,
            StatusLayout(kinds=KINDS, replicas=replicas, replica=job.replica),
            arrivals=self._arrivals,
            capped=self._capped(asked),
            conflict_monitor=self._monitor,
            notices=notices,
        )

    def _install(self, session: Session) -> None:
        """Have the engine call the session, through what emulates and traces where there is any."""
        listener: InstructionListener = session
        if self._emulation is not None:
            listener = self._emulation.listener(session, self._context.job, self._sizes.on_joined)
            self._undo.append(self._emulation.close)
        if self._context.config.trace_kernels:
            listener = self._traced(listener)
        listener = self._told_loads(listener)
        self._adapter.install(listener)
        self._undo.append(self._adapter.remove)

    def _told_loads(self, listener: InstructionListener) -> InstructionListener:
        """Have batches bring their loads: by the user's function, or read ahead where that is asked for."""
        settings, log = self._context.config.straggler, self._context.log
        if settings.loads == READ_AHEAD and not getattr(self._adapter, "read_ahead", bool)():
            log.event("loads_not_read_ahead", f"read_ahead has no effect with {self._adapter.name}")
        function = given_by_all(self._context.channel, settings.loads, log)
        if function is None:
            return listener
        rank = self._context.job.rank
        asked = UserLoads(listener, function, log=log, rank=rank)
        self._undo.append(asked.close)
        return asked

    def _traced(self, listener: InstructionListener) -> KernelTracing:
        """Trace the first iterations after the settling ones; ranks of the first replica write theirs."""
        context, job = self._context, self._context.job
        return KernelTracing(
            listener,
            order=job.order,
            iterations=context.config.trace_kernels,
            path=context.directory.kernels_of(job.rank) if job.replica == 0 else None,
            fingerprint=job.fingerprint,
            log=context.log,
        )
