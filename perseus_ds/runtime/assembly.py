"""Put a session together: every part with what ends it, in the order in which data goes through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.runtime.accounting import RankBooks
from perseus_ds.runtime.adapter import Adapter, InstructionListener, Place, WithoutInstructions
from perseus_ds.runtime.clocks import ClockSequencer
from perseus_ds.runtime.context import JobContext
from perseus_ds.runtime.cuda_timer import stopwatch_for
from perseus_ds.runtime.emulation import emulate
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.event_log import Scalars
from perseus_ds.runtime.kernel_tracing import KernelTracing
from perseus_ds.runtime.metrics import Publisher, RankMetrics
from perseus_ds.runtime.phases import WarmUp
from perseus_ds.runtime.plans import BatchPlans, StartAction, StartDecision
from perseus_ds.runtime.recorder import Arrivals, Recorder
from perseus_ds.runtime.session import Session
from perseus_ds.runtime.shared_device import SharedDevice
from perseus_ds.runtime.status import ConflictMonitor, NoticeWatch, StatusExchange
from perseus_ds.runtime.user_loads import READ_AHEAD, UserLoads, given_by_all
from perseus_ds.straggler.notices import Notices

Undo = list[Callable[[], None]]


def assemble(
    context: JobContext,
    adapter: Adapter,
    device: SharedDevice,
    start: StartDecision,
    *,
    places: Sequence[Place],
    undo: Undo,
) -> Session:
    """Build one rank's parts, and install the hooks; ``undo`` gets what ends each part."""
    gpu, job, virtual = device.choice.gpu, context.job, device.virtual_time
    stopwatch = stopwatch_for(gpu, device_type=adapter.device.type)
    undo.append(stopwatch.close)
    watch = EnergyWatch(gpu, context.capabilities, repeat=None if virtual is None else virtual.every)
    undo.append(watch.close)
    monitor = ConflictMonitor(gpu, context.log, rank=job.rank, directory=context.directory)
    undo.append(monitor.write)
    requests = device.requests(stopwatch.enter_thread)
    books = RankBooks(
        watch,
        sightings=monitor.sightings,
        overrun_share=device.overrun_share,
        clock_requests=requests.counts,
    )
    recorder = Recorder(
        stopwatch,
        job.order,
        skipped_steps=getattr(adapter, "skipped_steps", lambda: 0),
        adjoining=not context.simulated and getattr(adapter, "adjoining", False),
        replayed=job.replayed,
    )
    arrivals = Arrivals(job.order, pipeline_rank=job.pipeline_rank, behind=stopwatch.behind)
    plans = BatchPlans(context, adapter, books, arrivals, waits=virtual is not None)
    exchange = StatusExchange(
        context,
        arrivals=arrivals,
        watch=watch,
        asked=requests.asked,
        conflict_monitor=monitor,
        notices=_notices(context, undo),
    )
    undo.append(plans.close)
    session = Session(
        context,
        start,
        WarmUp(context, None if start.action is StartAction.OBSERVE else gpu),
        device=device,
        requests=requests,
        sequencer=ClockSequencer(requests, gpu.now_s, moment=stopwatch.moment),
        recorder=recorder,
        books=books,
        conflict_monitor=monitor,
        status_exchange=exchange,
        plans=plans,
        undo=undo,
        scalars=None if adapter.scalars_every is None else Scalars(adapter, context.log),
    )
    _publish(session, context, adapter.local_rank, plans, undo)
    watch.start()
    _install(session, context, adapter, plans, places=places, undo=undo)
    return session


def _notices(context: JobContext, undo: Undo) -> NoticeWatch | None:
    """Watch for notices on rank 0, which informs the others."""
    job, directory = context.job, context.directory
    if job.rank != 0:
        return None
    read = Notices(directory.notices, replicas=sum(map(len, job.sets)))
    notices = NoticeWatch(read, context.log, sets=job.sets, directory=directory.path)
    undo.append(notices.close)
    return notices


def _publish(session: Session, context: JobContext, local_rank: int, plans: BatchPlans, undo: Undo) -> None:
    """Leave this rank's numbers for monitoring, beside the training, where that is wanted."""
    settings = context.config.metrics
    if not settings.enabled:
        return
    figures = RankMetrics(
        context.job,
        context.directory,
        session.device.choice.gpu,
        session.books,
        session.requests,
        iteration=lambda: session.recorder.index,
        active_plan=lambda: session.active_plan,
        summaries=plans.summaries,
    )
    folder = context.directory.metrics if settings.folder is None else Path(settings.folder)
    path = folder / f"{figures.host}.{figures.gpu_uuid}.prom"  # jobs of a node may share the folder
    publisher = Publisher(figures, path.absolute(), say=context.log.line_here)
    undo.append(publisher.close)
    if settings.port is not None:
        publisher.serve(settings.port + local_rank)


def _install(
    session: Session,
    context: JobContext,
    adapter: Adapter,
    plans: BatchPlans,
    *,
    places: Sequence[Place],
    undo: Undo,
) -> None:
    """Have the engine call the session, through what emulates, traces and reads loads where there is any."""
    job, config, log = context.job, context.config, context.log
    listener: InstructionListener = WithoutInstructions(session) if job.replayed else session
    gpu = session.device.choice.gpu
    if isinstance(gpu, SimulatedGpu):
        listener = emulated = emulate(listener, gpu, job, places, plans.jobs, channel=context.channel)
        undo.append(emulated.close)
    if config.trace_kernels:
        listener = KernelTracing(
            listener,
            order=job.order,
            iterations=config.trace_kernels,
            path=context.directory.kernels_of(job.rank) if job.replica == 0 else None,
            fingerprint=job.fingerprint,
            log=log,
        )
    if config.straggler.loads == READ_AHEAD and not getattr(adapter, "read_ahead", bool)():
        log.event("loads_not_read_ahead", f"read_ahead has no effect with {adapter.name}")
    function = given_by_all(context.channel, config.straggler.loads, log)
    if function is not None:
        listener = user_loads = UserLoads(listener, function, log=log, rank=job.rank)
        undo.append(user_loads.close)
    adapter.install(listener)
    undo.append(adapter.remove)
