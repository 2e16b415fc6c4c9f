"""Put the parts of a session together, and arrange for their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseus_ds.config import PerseusConfig
from perseus_ds.device import Calibration, Capabilities
from perseus_ds.device.simulated import SimulatedGpu
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.adapter import Adapter, InstructionListener
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.comm.notice_watch import NoticeWatch
from perseus_ds.runtime.comm.status import StatusLayout
from perseus_ds.runtime.comm.status_exchange import StatusExchange
from perseus_ds.runtime.control.clock_sequencer import ClockSequencer
from perseus_ds.runtime.emulation import Emulation
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.batch_sizes import BatchSizes
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.lifecycle import Lifecycle
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.start_decision import StartDecision
from perseus_ds.runtime.measure.accounting import EnergyAccount
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.measure.cuda_stopwatch import stopwatch_for
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Recorder
from perseus_ds.runtime.observe.conflict_monitor import KINDS, ConflictMonitor
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.runtime.observe.publishing import Durations
from perseus_ds.runtime.observe.scalars import Scalars
from perseus_ds.runtime.startup.shared_device import SharedDevice
from perseus_ds.runtime.tracing.kernel_tracing import KernelTracing
from perseus_ds.straggler import Notices


@dataclass(frozen=True, slots=True)
class Parts:
    """What is known when a session is put together; ``emulation`` is None on a real device."""

    device: SharedDevice
    channel: ControlChannel
    log: EventLog
    job: Job
    start: StartDecision
    able: Capabilities
    calibration: Calibration | None
    directory: RunDirectory
    emulation: Emulation | None


def assembled(
    adapter: Adapter, config: PerseusConfig, parts: Parts, undo: list[Callable[[], None]]
) -> Session:
    """Build the session and install its hooks; ``undo`` gets what ends each part."""
    gpu, job, log = parts.device.choice.gpu, parts.job, parts.log
    stopwatch = stopwatch_for(gpu, device_type=adapter.device.type)
    undo.append(stopwatch.close)
    clock = gpu.virtual_time if isinstance(gpu, SimulatedGpu) else None
    watch = EnergyWatch(gpu, parts.able, repeat=None if clock is None else clock.every)
    undo.append(watch.close)
    requests = parts.device.requests(stopwatch.enter_thread)
    gpu.expect(call_s=parts.able.switch_call_s, latency_s=parts.able.switch_latency_s)
    conflict_monitor = ConflictMonitor(gpu, log, rank=job.rank, directory=parts.directory)
    undo.append(conflict_monitor.write)
    context = JobContext(
        job=job,
        config=config,
        capabilities=parts.able,
        calibration=parts.calibration,
        simulated=isinstance(gpu, SimulatedGpu),
        virtual_time=clock is not None,
        channel=parts.channel,
        watch=watch,
        account=EnergyAccount(watch),
        durations=Durations(),
        arrivals=Arrivals(job.order, pipeline_rank=job.pipeline_rank, behind=stopwatch.behind),
        conflict_monitor=conflict_monitor,
        directory=parts.directory,
        log=log,
        overrun_share=lambda: gpu.truth.overrun_share if isinstance(gpu, SimulatedGpu) else 0.0,
        clock_requests=requests.counts,
    )
    sizes = BatchSizes(adapter, job, channel=parts.channel, log=log)
    lifecycle = Lifecycle(context, parts.start, sizes)
    undo.append(lifecycle.close)
    session = Session(
        sizes=sizes,
        lifecycle=lifecycle,
        status_exchange=_status_exchange(context, undo),
        recorder=Recorder(stopwatch, job.order),
        sequencer=ClockSequencer(requests, gpu.now_s, moment=stopwatch.moment),
        requests=requests,
        device=parts.device,
        context=context,
        scalars=Scalars(adapter, log),
        raises=config.on_error == "raise",
    )
    watch.start()
    listener: InstructionListener = session
    if parts.emulation is not None:
        listener = parts.emulation.listener(session, job, sizes.on_joined)
        undo.append(parts.emulation.close)
    adapter.install(_traced(listener, context) if config.trace_kernels else listener)
    undo.append(adapter.remove)
    for act in undo:
        session.on_leaving(act)
    return session


def _traced(listener: InstructionListener, context: JobContext) -> KernelTracing:
    """Trace the first iterations after the settling ones; the first replica's ranks write what they saw."""
    job = context.job
    return KernelTracing(
        listener,
        order=job.order,
        iterations=context.config.trace_kernels,
        path=context.directory.kernels_of(job.rank) if job.replica == 0 else None,
        fingerprint=job.fingerprint,
        log=context.log,
    )


def _status_exchange(context: JobContext, undo: list[Callable[[], None]]) -> StatusExchange:
    job, log = context.job, context.log
    replicas = job.replicas if context.config.straggler.enabled else 1
    notices = None
    if job.rank == 0 and replicas > 1:
        notices = NoticeWatch(Notices(context.directory.notices, replicas=replicas), log, replicas=replicas)
        notices.start()
        undo.append(notices.close)
    return StatusExchange(
        context.channel,
        StatusLayout(kinds=KINDS, replicas=replicas, replica=job.replica),
        arrivals=context.arrivals,
        watch=context.watch,
        conflict_monitor=context.conflict_monitor,
        notices=notices,
    )
