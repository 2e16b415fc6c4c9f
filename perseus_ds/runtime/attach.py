"""From a host's first training iteration to a session, or to one line with the reason for its absence."""

from __future__ import annotations

import atexit
import logging
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet, ref

import torch.distributed as dist

from perseus_ds import __version__
from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig, StragglerSettings, parse, read_block
from perseus_ds.config.load import refuse_two_blocks, resolve, text_digest
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.errors import ConfigError, PerseusError, as_perseus_error
from perseus_ds.guard.spawn import own_environment
from perseus_ds.plan.select import count_of
from perseus_ds.run_directory.events import read_events, why_unmeasured
from perseus_ds.run_directory.paths import RunDirectory, release
from perseus_ds.run_directory.records import read_summary, write_places
from perseus_ds.runtime.adapter import Adapter, SyncPoint
from perseus_ds.runtime.assembly import Undo, assemble
from perseus_ds.runtime.channel import ControlChannel
from perseus_ds.runtime.context import JobContext, SwitchLatency
from perseus_ds.runtime.emulation import works_of
from perseus_ds.runtime.event_log import EventLog, log_line
from perseus_ds.runtime.job import Job, members_of, recognise
from perseus_ds.runtime.plans import StartAction, StartDecision, decide
from perseus_ds.runtime.rendezvous import RendezvousResult, flags, leave_refusal, rendezvous
from perseus_ds.runtime.session import Session
from perseus_ds.runtime.shared_device import SharedDevice, request_of, shared_device
from perseus_ds.runtime.usable import check_usable, run_directory_of

# Begin a session on one engine: device, control channel, the job's identity, start decision, hooks.

T = TypeVar("T")
_FIRST = {
    StartAction.RUN: "runs a plan",
    StartAction.PLAN: "plans first",
    StartAction.PROFILE: "profiles first",
    StartAction.OBSERVE: "only observes",
}


def begin(
    adapter: Adapter, config: PerseusConfig, *, engine: int, meeting: RendezvousResult
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
            with suppress(Exception):  # one that fails keeps no other from its turn
                act()
        raise


def _begin(
    adapter: Adapter, config: PerseusConfig, engine: int, meeting: RendezvousResult, undo: Undo
) -> tuple[Session, JobContext]:
    channel = ControlChannel(meeting.name, meeting.reach)
    channel.connect()
    log = EventLog(channel.rank, engine=engine)
    device = _on_all(channel, lambda: _open_device(adapter, config, channel.rank, undo))
    gpu = device.choice.gpu
    path, why_elsewhere = channel.broadcast_result(lambda: _own_directory(config, undo))
    directory = RunDirectory(path)
    log.writes_to(directory)
    members = members_of(adapter, gpu, channel)
    job = recognise(adapter, members, channel=channel, config=config)
    places = [member.place for member in members]
    config = _answerable(config, adapter, job, log)

    def choose_start() -> StartDecision:
        if isinstance(gpu, SimulatedGpu):
            works_of(job.weights, gpu.settings)  # refused before the log says that we are there
        able = gpu.capabilities()
        return decide(config, job, directory, can_lock=able.can_lock, why_not=able.why_not or "")

    start = channel.broadcast_result(choose_start)
    _log_attached(log, job, config, device, start)
    if job.rank == 0:
        _write_places(job, directory, log)
    if why_elsewhere:
        log.event("other_directory", why_elsewhere)
    for line in sorted({member.place.untested for member in members} - {""}):
        log.line(line)
    if meeting.reach.why:
        log.event("interface", meeting.reach.why)
    if job.schedule.ranks == 1 and config.objective.policy == "no_slowdown":
        beside = ", but beside a straggler" if job.replicas > 1 and config.straggler.enabled else ""
        log.event(
            "no_slack",
            "no rank waits for another within an iteration, so that no clock can be lowered at no slowdown"
            f"{beside}: for a saving set objective.policy to max_slowdown, deadline or min_energy",
        )
    context = JobContext(job, config, SwitchLatency(gpu.capabilities()), channel, directory, log)
    session = _on_all(channel, lambda: assemble(context, adapter, device, start, places=places, undo=undo))
    channel.settle()
    return session, context


def _own_directory(config: PerseusConfig, undo: Undo) -> tuple[Path, str]:
    check_usable(config)
    path, why_elsewhere = run_directory_of(config)
    undo.insert(0, partial(release, path))  # done last: the clocks come first
    return path, why_elsewhere


def _on_all(channel: ControlChannel, made: Callable[[], T]) -> T:
    """Make something on every rank, or on none; what was begun here is the caller's to undo."""
    mine: list[T] = []
    channel.gather_results(lambda: mine.append(made()))
    return mine[0]


def _answerable(config: PerseusConfig, adapter: Adapter, job: Job, log: EventLog) -> PerseusConfig:
    """Answer no stragglers where a replica's own duration cannot be known; report it."""
    tells = adapter.sync_point is SyncPoint.REDUCTION and not job.replayed
    if job.replicas == 1 or not config.straggler.enabled or tells:
        return config
    where = "iterations that are seen as wholes" if job.replayed else adapter.sync_point.value
    log.line(f"stragglers are not answered: replicas wait for each other in {where}")
    return replace(config, straggler=StragglerSettings(enabled=False))


def _open_device(adapter: Adapter, config: PerseusConfig, rank: int, undo: Undo) -> SharedDevice:
    device = shared_device(request_of(adapter, config, rank=rank))
    undo.append(device.release)
    return device


def _shape(job: Job) -> str:
    """Describe the job's pipeline: 4 stages x 1 replica, 8 microbatches."""
    stages, replicas = count_of(job.schedule.stages, "stage"), count_of(job.replicas, "replica")
    if job.coupled:
        size = len(job.sets[0])
        sets = f", in {job.replicas} sets of {size}" if job.replicas > 1 else ""
        replicas = f"{count_of(job.replicas * size, 'replica')} (coupled in every layer{sets})"
    width = job.ranks // (job.schedule.ranks * sum(map(len, job.sets)))
    wide = f", {width} tensor-parallel ranks each" if width > 1 else ""
    return f"{stages} x {replicas}{wide}, {count_of(job.schedule.microbatches, 'microbatch', 'es')}"


def _write_places(job: Job, directory: RunDirectory, log: EventLog) -> None:
    """Write where every rank is, for who shares out power or names a GPU; without it training goes on."""
    try:
        write_places(job.places, directory.places)
    except OSError as error:
        log.line(f"{directory.places} is not written: {error.strerror}")


def _log_attached(
    log: EventLog, job: Job, config: PerseusConfig, device: SharedDevice, start: StartDecision
) -> None:
    backend, reason = device.choice.backend, device.choice.reason
    log.event(
        "attached",
        f"attached to {_shape(job)}; device {backend} ({reason}); {_FIRST[start.action]}: {start.reason}",
        mode=config.mode,
        device=backend,
        start=start.action.value,
        replicas=job.replicas,
        host=socket.gethostname(),
        pid=os.getpid(),
        run=log.run,
        version=__version__,
        python=platform.python_version(),
        fingerprint=dict(job.fingerprint),
    )


# Engines that are served in this process, and their end: clocks back, threads ended, a report from rank 0.

_PATIENCE_S = 120.0
_LAST_ERROR = ("last_type", "last_exc")  # where the interpreter keeps what ended the program


@dataclass(frozen=True, slots=True)
class _Served:
    """A session, the run directory that it was asked for and the one it writes to, and the job's ranks."""

    session: Session
    run_dir: str
    path: Path
    world: ref[object]


_served: WeakKeyDictionary[object, _Served] = WeakKeyDictionary()
_open_sessions: WeakSet[Session] = WeakSet()
_runs: dict[Path, str] = {}
"""The last run of each run directory that this process reports on."""


@cache
def _register() -> None:
    """Have one handler end all sessions; it runs before the one that waits for their devices.

    Exit handlers do not run where a worker ends by ``os._exit`` or is killed: the guard restores the clocks,
    and ``perseus-ds report`` draws what was measured.
    """
    atexit.register(_end, os.getpid())


def _end(pid: int) -> None:
    if os.getpid() != pid:
        return  # a child that was forked: the job is its parent's
    well = not any(hasattr(sys, name) for name in _LAST_ERROR)
    for session in list(_open_sessions):
        session.end(well=well)
    for run_dir, run in _runs.items():
        _leave_report(RunDirectory(run_dir), run)


def _leave_report(directory: RunDirectory, run: str) -> None:
    """Draw the report of what ``run`` measured, or log why there is none."""
    try:
        events = read_events(directory.events)
        began = [event.get("run") for event in events if event.get("event") == "attached"]
        why = why_unmeasured(events)
        if began and began[-1] != run:
            why = f"no saving is reported: another job has written to {directory.path} since this one began"
        exists = why is None and directory.summary.exists()
        if exists and read_summary(directory.summary).facts.get("run") == run:
            _draw(directory)
    except (OSError, PerseusError, subprocess.SubprocessError) as error:
        why = f"no saving is reported: {error}"
    if why is not None:
        log_line(why)


def _draw(directory: RunDirectory) -> None:
    """Draw the page in a process of its own, with a time limit: a job does not hang for its report."""
    program = "import sys; from perseus_ds.cli.main import main; sys.exit(main())"
    done = subprocess.run(  # noqa: S603  # our own command
        [sys.executable, "-P", "-c", program, "report", str(directory.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=own_environment(),
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        log_line(line)


def activate(host: object, adapter_of: Callable[[], Adapter], *, block: object) -> None:
    """Serve a host from this iteration on; collective over all ranks of the job.

    ``adapter_of`` checks the host and makes its adapter: a rank where it raises signs in with that refusal,
    and no rank is served. ``block`` is the block of the host's own configuration, None where the job was
    switched on by ``PERSEUS_CONFIG``. Rank 0's block and flags hold for all: launchers do not carry every
    variable to every node. What goes wrong is one line and training at default clocks, unless the block has
    ``"on_error": "raise"``.
    """
    logging_rank = 0
    adapter: Adapter | None = None
    refusal: PerseusError | None = None
    try:
        _leave_stranded()
        settings = _settings(block)
        try:
            if block is not None:
                refuse_two_blocks(os.environ)
            adapter = adapter_of()
        except Exception as error:  # noqa: BLE001  # all others are told
            refusal = as_perseus_error(error)
        meeting = rendezvous(settings, refusal=refusal)
        block, logging_rank = meeting.settings.get("block", block), meeting.logging_rank
        config = _agreed_config(meeting, settings)
        if config is None:
            return
        assert adapter is not None
        others = [one for one in _served.values() if not one.session.left]
        engine, run_dir = 1 + len(others), config.run_dir
        for one in others:  # another engine of this process may have the same block
            if one.run_dir == run_dir:
                config = replace(config, run_dir=str(one.path / f"engine{engine}"))
        session, context = begin(adapter, config, engine=engine, meeting=meeting)
    except Exception as error:  # noqa: BLE001  # the host wins
        refuse(error, block, logging_rank=logging_rank)
        return
    try:
        path = context.directory.path
        _served[host] = _Served(session, config.run_dir, path, ref(dist.group.WORLD))
        _open_sessions.add(session)
        if _rank() == 0:
            _runs[path] = context.log.run
        _register()
    except Exception as error:
        if session.fail(error):
            raise


def session_of(host: object) -> Session | None:
    """Return what serves a host, for who wants to look at it; None where nothing does."""
    served = _served.get(host)
    return None if served is None else served.session


def deactivate(host: object) -> bool:
    """Give a host its own methods, and the GPU its own clocks, back; return whether it was served."""
    served = _served.pop(host, None)
    if served is None:
        return False
    served.session.end(well=True)
    return True


def _leave_stranded() -> None:
    """Let go of hosts whose ranks have parted: the job has made another process group in this process."""
    for one in list(_served.values()):
        if not one.session.left and one.world() is not dist.group.WORLD:
            one.session.leave()


def decline(error: Exception, block: object) -> None:
    """Refuse a host whose first iteration cannot be waited for; the other ranks find the refusal there."""
    if dist.is_initialized():
        leave_refusal(as_perseus_error(error), _settings(block))
    refuse(error, block)


def refuse(error: Exception, block: object, *, logging_rank: int = 0) -> None:
    """Report why we are off, or raise if the user wants that."""
    if isinstance(block, dict) and block.get("on_error") == "raise":
        raise as_perseus_error(error)
    say(f"off, training goes on at default clocks: {error}", logging_rank=logging_rank)


def say(line: str, *, logging_rank: int = 0) -> None:
    """Log a line on one rank, before there is a session that could."""
    if _rank() == logging_rank:
        log_line(line)


def _settings(block: object) -> dict[str, object]:
    """Return what this rank signs in with; rank 0's block has its variables replaced, or is an error."""
    settings: dict[str, object] = {"flags": flags(os.environ), "block": block}
    if block is None:
        settings["file"] = text_digest(os.environ[ENABLED_BY_FILE])
    if _rank() == 0:
        try:
            found = read_block(os.environ[ENABLED_BY_FILE]) if block is None else block
            settings["block"] = resolve(found) if isinstance(found, Mapping) else found
        except Exception as error:  # noqa: BLE001  # all others wait for it
            refused = as_perseus_error(error)
            settings["error"] = [refused.message, refused.hint]
    return settings


def _agreed_config(meeting: RendezvousResult, mine: Mapping[str, object]) -> PerseusConfig | None:
    """Read rank 0's block, as every rank does; None where it switches us off: then nobody minds who refuses.

    Raises:
        PerseusError: the block is refused, rank 0 could not read it, or a rank is missing or not served.
    """
    agreed = meeting.settings
    if not agreed:
        meeting.check()
    if "error" in agreed:
        message, hint = cast("list[str]", agreed["error"])
        raise ConfigError(message, hint=hint)
    differs = "file" in mine and mine["file"] not in {None, agreed.get("file")}
    if differs and os.environ.get("LOCAL_RANK", "0") == "0":  # once on every node
        file = f"{ENABLED_BY_FILE}={os.environ[ENABLED_BY_FILE]}"
        line = f"[rank {_rank()}] {file} differs from rank 0's, which holds for all"
        log_line(line, level=logging.WARNING)
    found, environment = agreed["block"], agreed["flags"]
    assert isinstance(environment, dict)
    if isinstance(found, dict) and found.setdefault("enabled", "file" in agreed) is False:
        return None
    config = parse(found, environment)
    if config.mode == "off":
        return None
    meeting.check()
    return config


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
