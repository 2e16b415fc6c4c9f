"""Begin a session on one engine: settings, device, control channel, start decision, hooks."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch

from perseus_ds.adapters.deepspeed.hooks import Interception
from perseus_ds.adapters.deepspeed.seam import PipelineEngine, PipeSchedule, raw_config
from perseus_ds.config import PerseusConfig, is_enabled, parse
from perseus_ds.device import Calibration, Capabilities, Choice, DeviceRequest, Gpu, choose
from perseus_ds.device.simulated import SimulatedGpu, simulated_settings
from perseus_ds.emulation import emulate, weight_of_stage
from perseus_ds.errors import ConfigError, PerseusError
from perseus_ds.run_directory import RunDirectory
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.comm.status_exchange import status_exchange_of
from perseus_ds.runtime.control.clock_requests import ClockRequests
from perseus_ds.runtime.control.clock_sequencer import ClockSequencer
from perseus_ds.runtime.job import Job, recognise
from perseus_ds.runtime.lifecycle.calibrating import calibrated
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.lifecycle import Lifecycle
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.start_decision import StartAction, StartDecision, decide
from perseus_ds.runtime.measure.accounting import EnergyAccount
from perseus_ds.runtime.measure.arrivals import Arrivals
from perseus_ds.runtime.measure.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Recorder
from perseus_ds.runtime.measure.stopwatch import stopwatch_for
from perseus_ds.runtime.observe.conflict_monitor import ConflictMonitor
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.runtime.observe.publishing import Durations
from perseus_ds.runtime.observe.scalars import Scalars


def effective_config(engine: object, environment: Mapping[str, str]) -> PerseusConfig | None:
    """The block with the flags of rank 0's environment; None when the job does not ask for us.

    Raises:
        ConfigError: the block is refused.
    """
    content = raw_config(engine)
    if not is_enabled(content):
        return None
    return parse(content["perseus"], environment)


def begin(engine: PipelineEngine, pipe_schedule: PipeSchedule, config: PerseusConfig) -> Session:
    """Start working on this engine; collective over all ranks of the job.

    Raises:
        PerseusError: we cannot serve this job; the engine is as it was.
    """
    undo: list[Callable[[], None]] = []
    try:
        return _begin(engine, pipe_schedule, config, undo)
    except BaseException:
        for act in reversed(undo):
            act()
        raise


def _begin(
    engine: PipelineEngine, pipe_schedule: PipeSchedule, config: PerseusConfig, undo: list[Callable[[], None]]
) -> Session:
    channel = ControlChannel()
    log = EventLog(channel.rank)
    choice = _agreed(channel, lambda: choose(_request(engine, config)))
    gpu = choice.gpu
    undo.append(gpu.close)
    if isinstance(gpu, SimulatedGpu):
        _check_stages(gpu, engine.num_stages)
    directory = RunDirectory(Path(config.run_dir))
    log.writes_to(directory)
    job = recognise(engine, pipe_schedule, gpu, channel=channel, config=config)
    start = _start_decision(config, job, directory, channel, gpu)
    log.event(
        "attached",
        f"attached to {job.schedule.stages} stages x {job.ranks // job.schedule.stages} replicas, "
        f"{job.schedule.microbatches} microbatches; device {choice.backend} ({choice.reason}); "
        f"{start.move.value}: {start.reason}",
        mode=config.mode,
        device=choice.backend,
        start=start.move.value,
        replicas=job.replicas,
        host=socket.gethostname(),
        pid=os.getpid(),
        fingerprint=dict(job.fingerprint),
        **({"groups": [asdict(group) for group in job.groups]} if job.mixed else {}),
    )
    if job.mixed:
        log.line(
            "the replicas have different GPUs: each kind is measured and planned by itself, and all meet at "
            "the slowest one's time"
        )
    if isinstance(gpu, SimulatedGpu):
        undo.append(_emulated(engine, gpu, channel))
    able, calibration = gpu.capabilities(), None
    if start.move is not StartAction.OBSERVE:
        able, calibration = calibrated(gpu, channel, log)
    return _session(
        engine,
        config,
        choice=choice,
        channel=channel,
        log=log,
        job=job,
        start=start,
        able=able,
        calibration=calibration,
        undo=undo,
    )


def _session(
    engine: PipelineEngine,
    config: PerseusConfig,
    *,
    choice: Choice,
    channel: ControlChannel,
    log: EventLog,
    job: Job,
    start: StartDecision,
    able: Capabilities,
    calibration: Calibration | None,
    undo: list[Callable[[], None]],
) -> Session:
    gpu = choice.gpu
    stopwatch = stopwatch_for(gpu, device_type=_device_type(engine))
    watch = EnergyWatch(gpu, able)
    undo.append(watch.close)
    requests = ClockRequests(gpu)
    undo.append(requests.close)
    account, durations = EnergyAccount(watch), Durations()
    directory = RunDirectory(Path(config.run_dir))
    conflict_monitor = ConflictMonitor(gpu, log, rank=job.rank, directory=directory)
    undo.append(conflict_monitor.write)
    context = JobContext(
        job=job,
        config=config,
        capabilities=able,
        calibration=calibration,
        simulated=isinstance(gpu, SimulatedGpu),
        channel=channel,
        watch=watch,
        account=account,
        durations=durations,
        arrivals=Arrivals(stage=job.stage, behind=stopwatch.behind),
        conflict_monitor=conflict_monitor,
        directory=directory,
        log=log,
    )
    lifecycle = Lifecycle(context, start)
    session = Session(
        microbatches=job.schedule.microbatches,
        lifecycle=lifecycle,
        status_exchange=status_exchange_of(context, undo),
        recorder=Recorder(stopwatch),
        sequencer=ClockSequencer(requests, gpu.now_s, event=stopwatch.event),
        requests=requests,
        watch=watch,
        account=account,
        durations=durations,
        conflict_monitor=conflict_monitor,
        scalars=Scalars(engine, log),
        log=log,
        raises=config.on_error == "raise",
    )
    watch.start()
    interception = Interception(engine, session)
    interception.install()
    for act in (*undo, lifecycle.close, interception.remove):
        session.on_leaving(act)
    return session


def _request(engine: PipelineEngine, config: PerseusConfig) -> DeviceRequest:
    uuid = None
    if _device_type(engine) == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        uuid = f"GPU-{properties.uuid}"
    simulated = simulated_settings(config.simulated) if config.device == "simulated" else None
    return DeviceRequest(
        setting=config.device,
        local_rank=_local_rank(engine),
        uuid=uuid,
        simulated=simulated,
        lock=config.mode != "observe",
    )


def _local_rank(engine: PipelineEngine) -> int:
    return int(os.environ.get("LOCAL_RANK", engine.global_rank))


def _device_type(engine: object) -> str:
    return str(getattr(engine, "device", "cpu")).split(":", maxsplit=1)[0]


def _agreed(channel: ControlChannel, act: Callable[[], Choice]) -> Choice:
    """Do something on every rank, and refuse on all what is refused on one."""
    mine: Choice | None = None
    error: PerseusError | None = None
    try:
        mine = act()
    except PerseusError as refused:
        error = refused
    errors = [one for one in cast("list[PerseusError | None]", channel.gather(error)) if one is not None]
    if errors:
        if mine is not None:
            mine.gpu.close()
        raise error or errors[0]
    assert mine is not None
    return mine


def _start_decision(
    config: PerseusConfig, job: Job, directory: RunDirectory, channel: ControlChannel, gpu: Gpu
) -> StartDecision:
    """Rank 0 decides; its refusal is everyone's."""
    decision: StartDecision | PerseusError | None = None
    if job.rank == 0:
        capabilities = gpu.capabilities()
        try:
            decision = decide(
                config, job, directory, can_lock=capabilities.can_lock, why_not=capabilities.why_not or ""
            )
        except PerseusError as error:
            decision = error
    decided = channel.broadcast(decision)
    if isinstance(decided, PerseusError):
        raise decided
    return cast("StartDecision", decided)


def _check_stages(gpu: SimulatedGpu, stages: int) -> None:
    """Refuse on all ranks what would be refused on the last stage alone."""
    listed = gpu.settings.forward_s
    if listed is not None and len(listed) != stages:
        raise ConfigError(
            f"perseus.simulated.forward_s has {len(listed)} entries and the job {stages} stages"
        )


def _emulated(engine: PipelineEngine, gpu: SimulatedGpu, channel: ControlChannel) -> Callable[[], None]:
    """Make this stage last as long as its share of the model would on the simulated GPU."""
    module = getattr(engine, "module", None)
    weights = cast("list[tuple[int, float]]", channel.gather((engine.stage_id, weight_of_stage(module))))
    by_stage = dict(weights)
    mean_weight = sum(by_stage.values()) / len(by_stage)
    return emulate(engine, gpu, gpu.settings, mean_weight=mean_weight)
