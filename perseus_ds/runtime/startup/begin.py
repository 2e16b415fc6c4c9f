"""Begin a session on one engine: device, control channel, the job's identity, start decision, hooks."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from perseus_ds import __version__
from perseus_ds.config import PerseusConfig, StragglerSettings
from perseus_ds.device.gpu import Choice, DeviceRequest, Gpu
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.settings import simulated_settings
from perseus_ds.run_directory.paths import RunDirectory, release
from perseus_ds.run_directory.records import RankPlace, write_places
from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.comm.rendezvous import Meeting
from perseus_ds.runtime.emulation import Emulation, works_of
from perseus_ds.runtime.emulation_links import TimeMessages
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.lifecycle.reckoning import Reckoning
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.start_decision import StartAction, StartDecision, decide
from perseus_ds.runtime.startup.assembly import Assembly
from perseus_ds.runtime.startup.recognition import Member, members_of, recognise, weights_of
from perseus_ds.runtime.startup.shared_device import SharedDevice, shared_device
from perseus_ds.runtime.startup.usable import check_usable, run_directory_of

T = TypeVar("T")
_FIRST = {
    StartAction.RUN: "runs a plan",
    StartAction.PLAN: "plans first",
    StartAction.PROFILE: "profiles first",
    StartAction.OBSERVE: "only observes",
}
Undo = list[Callable[[], None]]


def begin(
    adapter: Adapter, config: PerseusConfig, *, engine: int, meeting: Meeting
) -> tuple[Session, JobContext]:
    """Start working on an engine, from this iteration on; collective over all ranks of the job.

    ``engine`` counts those that are served in this process; ``meeting`` is where all ranks agreed on it.

    Raises:
        PerseusError: we cannot serve this job; the engine is as it was.
    """
    undo: Undo = []
    try:
        return _begin(adapter, config, engine, meeting, undo)
    except BaseException:
        for act in reversed(undo):
            act()
        raise


def _begin(
    adapter: Adapter, config: PerseusConfig, engine: int, meeting: Meeting, undo: Undo
) -> tuple[Session, JobContext]:
    channel = ControlChannel(meeting.name, meeting.reach)
    channel.connect()
    log = EventLog(channel.rank, engine=engine)
    device = _on_all(channel, lambda: _opened(adapter, config, channel.rank, undo))
    choice, gpu = device.choice, device.choice.gpu
    path, why_elsewhere = channel.broadcast_result(lambda: _own_directory(config, undo))
    directory = RunDirectory(path)
    log.writes_to(directory)
    members = members_of(adapter, gpu, channel)
    job = recognise(adapter, members, channel=channel, config=config)
    emulation = _emulation(gpu, members, meeting)
    config = _answerable(config, adapter, job, log)
    start = _start(config, job, directory, channel, gpu)
    _log_attached(log, job, config, choice, start)
    if job.rank == 0:
        _write_places(job, directory, log)
    if why_elsewhere:
        log.event("other_directory", why_elsewhere)
    for line in sorted({member.place.untested for member in members} - {""}):
        log.line(line)
    if meeting.reach.why:
        log.event("interface", meeting.reach.why)
    for line in directory.shared_with():
        log.event("shared", line)
    if job.schedule.ranks == 1 and config.objective.policy == "no_slowdown":
        log.event("no_slack", _no_slack(job, config))
    context = JobContext(job, config, Reckoning(gpu.capabilities()), channel, directory, log)

    def assembled() -> Session:
        return Assembly(context, adapter, device, undo, emulation=emulation).session(start)

    session = _on_all(channel, assembled)
    channel.settle()
    return session, context


def _own_directory(config: PerseusConfig, undo: Undo) -> tuple[Path, str]:
    check_usable(config)
    path, why_elsewhere = run_directory_of(config)
    undo.insert(0, partial(release, path))  # done last: the clocks come first
    return path, why_elsewhere


def _on_all(channel: ControlChannel, made: Callable[[], T]) -> T:
    """Make something on every rank, or on none; what was begun here is the caller's to undo.

    Raises:
        PerseusError: it could not be made on some rank; alike on all.
    """
    mine: list[T] = []
    channel.gather_results(lambda: mine.append(made()))
    return mine[0]


def _answerable(config: PerseusConfig, adapter: Adapter, job: Job, log: EventLog) -> PerseusConfig:
    """Answer no stragglers where a replica's own duration cannot be known; report it."""
    if job.replicas == 1 or not config.straggler.enabled or adapter.sync_point.tells_own_time:
        return config
    log.line(f"stragglers are not answered: replicas wait for each other in {adapter.sync_point.value}")
    return replace(config, straggler=StragglerSettings(enabled=False))


def _opened(adapter: Adapter, config: PerseusConfig, rank: int, undo: Undo) -> SharedDevice:
    device = shared_device(_request(adapter, config, rank=rank))
    undo.append(device.release)
    return device


def _request(adapter: Adapter, config: PerseusConfig, *, rank: int) -> DeviceRequest:
    uuid = pci_bus_id = None
    if adapter.device.type == "cuda":
        properties = torch.cuda.get_device_properties(adapter.device)
        uuid, pci_bus_id = address_of(properties, hip=torch.version.hip is not None)
    simulated = simulated_settings(config.simulated, rank=rank) if config.device == "simulated" else None
    return DeviceRequest(
        setting=config.device,
        local_rank=adapter.local_rank,
        uuid=uuid,
        pci_bus_id=pci_bus_id,
        simulated=simulated,
        lock=config.mode != "observe",
        allow_unguarded_container=config.allow_unguarded_container,
        restore_clock_mhz=config.restore_clock_mhz,
    )


def address_of(properties: object, *, hip: bool) -> tuple[str | None, str | None]:
    """Return a device's UUID, or on HIP its PCI bus id: UUIDs are not amdsmi's before ROCm 7.12."""
    numbers = [getattr(properties, f"pci_{part}_id", -1) for part in ("domain", "bus", "device")]
    if not hip or -1 in numbers:
        return f"GPU-{getattr(properties, 'uuid')}", None  # noqa: B009  # torch's record is not typed
    domain, bus, number = numbers
    return None, f"{domain:04x}:{bus:02x}:{number:02x}.0"


def _emulation(gpu: Gpu, members: Sequence[Member], meeting: Meeting) -> Emulation | None:
    """What simulated GPUs need; collective where their time is virtual."""
    if not isinstance(gpu, SimulatedGpu):
        return None
    works = works_of(weights_of(members), gpu.settings)
    messages = None if gpu.virtual_time is None else TimeMessages(meeting.name, meeting.reach)
    return Emulation(gpu, works, [member.place for member in members], messages)


def _start(
    config: PerseusConfig, job: Job, directory: RunDirectory, channel: ControlChannel, gpu: Gpu
) -> StartDecision:
    """Rank 0 decides; its refusal is everyone's."""

    def decided() -> StartDecision:
        able = gpu.capabilities()
        return decide(config, job, directory, can_lock=able.can_lock, why_not=able.why_not or "")

    return channel.broadcast_result(decided)


def _no_slack(job: Job, config: PerseusConfig) -> str:
    """State what a pipeline of one rank can save, before a user waits for a saving that cannot come."""
    beside = ", but beside a straggler" if job.replicas > 1 and config.straggler.enabled else ""
    return (
        "no rank waits for another within an iteration, so that no clock can be lowered at no slowdown"
        f"{beside}: for a saving set objective.policy to max_slowdown, deadline or min_energy"
    )


def _width(job: Job) -> str:
    """State how many ranks share a place in the pipeline, where it is not one."""
    ranks = job.ranks // (job.schedule.ranks * sum(map(len, job.sets)))
    return f", {ranks} tensor-parallel ranks each" if ranks > 1 else ""


def _shape(job: Job) -> str:
    """Describe the job's pipeline: 4 stages x 1 replica, 8 microbatches."""
    stages, replicas = _count(job.schedule.stages, "stage"), _count(job.replicas, "replica")
    if job.coupled:
        size = len(job.sets[0])
        sets = f", in {job.replicas} sets of {size}" if job.replicas > 1 else ""
        replicas = f"{_count(job.replicas * size, 'replica')} (coupled in every layer{sets})"
    return f"{stages} x {replicas}{_width(job)}, {_count(job.schedule.microbatches, 'microbatch', 'es')}"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _write_places(job: Job, directory: RunDirectory, log: EventLog) -> None:
    """Write where every rank is, for who shares out power or names a GPU; without it training goes on."""
    places = [
        RankPlace(pipeline, rank, address.host, address.gpu)
        for (pipeline, rank), address in zip(job.places, job.addresses, strict=True)
    ]
    try:
        write_places(places, directory.places)
    except OSError as error:
        log.line(f"{directory.places} is not written: {error.strerror}")


def _log_attached(
    log: EventLog, job: Job, config: PerseusConfig, choice: Choice, start: StartDecision
) -> None:
    log.event(
        "attached",
        f"attached to {_shape(job)}; device {choice.backend} ({choice.reason}); "
        f"{_FIRST[start.action]}: {start.reason}",
        mode=config.mode,
        device=choice.backend,
        start=start.action.value,
        replicas=job.replicas,
        host=socket.gethostname(),
        pid=os.getpid(),
        run=log.run,
        version=__version__,
        python=platform.python_version(),
        fingerprint=dict(job.fingerprint),
    )
