"""Put a session together, and arrange for its end."""

from __future__ import annotations

from collections.abc import Callable

from perseus_ds.device import AskedClocks, Calibration
from perseus_ds.device.simulated import SimulatedGpu
from perseus_ds.runtime.adapter import Adapter, InstructionListener
from perseus_ds.runtime.comm.notice_watch import NoticeWatch
from perseus_ds.runtime.comm.status import StatusExchange, StatusLayout
from perseus_ds.runtime.control.clock_sequencer import ClockSequencer
from perseus_ds.runtime.emulation import Emulation
from perseus_ds.runtime.lifecycle.auditing import Audits
from perseus_ds.runtime.lifecycle.batch_plans import BatchPlans
from perseus_ds.runtime.lifecycle.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.lifecycle import Lifecycle
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.start_decision import StartDecision
from perseus_ds.runtime.lifecycle.sweeping import Sweeping
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.measure.capped import is_capped
from perseus_ds.runtime.measure.cuda_stopwatch import stopwatch_for
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration, Recorder
from perseus_ds.runtime.observe.conflict_monitor import KINDS, ConflictMonitor
from perseus_ds.runtime.observe.rank_report import RankBooks
from perseus_ds.runtime.observe.scalars import Scalars
from perseus_ds.runtime.startup.shared_device import SharedDevice
from perseus_ds.runtime.tracing.kernel_tracing import KernelTracing
from perseus_ds.straggler import Notices


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

    def session(self, start: StartDecision, calibration: Calibration | None) -> Session:
        """Build the session and install its hooks."""
        context, gpu, able = self._context, self._device.choice.gpu, self._context.capabilities
        requests = self._device.requests(self._stopwatch.enter_thread)
        gpu.expect(call_s=able.switch_call_s, latency_s=able.switch_latency_s)
        books = RankBooks(
            self._watch,
            sightings=self._monitor.sightings,
            overrun_share=lambda: gpu.truth.overrun_share if isinstance(gpu, SimulatedGpu) else 0.0,
            clock_requests=requests.counts,
        )
        session = Session(
            self._lifecycle(start, calibration, books, requests.asked),
            recorder=Recorder(self._stopwatch, context.job.order),
            sequencer=ClockSequencer(
                requests,
                gpu.now_s,
                moment=self._stopwatch.moment,
                turns=self._device,
                latency_s=able.switch_latency_s or 0.0,
            ),
            books=books,
            conflict_monitor=self._monitor,
            log=context.log,
            raises=context.config.on_error == "raise",
        )
        self._watch.start()
        self._install(session)
        for act in self._undo:
            session.on_leaving(act)
        return session

    def _lifecycle(
        self,
        start: StartDecision,
        calibration: Calibration | None,
        books: RankBooks,
        asked: AskedClocks,
    ) -> Lifecycle:
        context, waits = self._context, self._virtual_time is not None
        plans = BatchPlans(context, self._sizes, Audits(books), self._arrivals, waits=waits)
        lifecycle = Lifecycle(
            context,
            start,
            sizes=self._sizes,
            status_exchange=self._status_exchange(asked),
            sweeping=Sweeping(context, self._watch, self._monitor, calibration),
            plans=plans,
            scalars=Scalars(self._adapter, context.log),
        )
        self._undo.append(lifecycle.close)
        return lifecycle

    def _status_exchange(self, asked: AskedClocks) -> StatusExchange:
        context, job = self._context, self._context.job

        def capped(iteration: Iteration) -> bool:
            looks = self._watch.looks_between(iteration.start_s, iteration.end_s)
            return is_capped(looks, asked, settle_s=2.0 * context.capabilities.switch_latency_s)

        replicas = job.replicas if context.config.straggler.enabled else 1
        notices = None
        if job.rank == 0 and replicas > 1:
            announced = Notices(context.directory.notices, replicas=replicas)
            notices = NoticeWatch(announced, context.log, replicas=replicas)
            notices.start()
            self._undo.append(notices.close)
        return StatusExchange(
            context.channel,
            StatusLayout(kinds=KINDS, replicas=replicas, replica=job.replica),
            arrivals=self._arrivals,
            capped=capped,
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
        self._adapter.install(listener)
        self._undo.append(self._adapter.remove)

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
