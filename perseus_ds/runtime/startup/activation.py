"""From a host's first training iteration to a session, or to one line with the reason for its absence."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast
from weakref import WeakKeyDictionary, ref

import torch.distributed as dist

from perseus_ds.config import (
    ENABLED_BY_FILE,
    PerseusConfig,
    parse,
    read_block,
    refuse_two_blocks,
    resolved,
    text_digest,
)
from perseus_ds.errors import ConfigError, PerseusError, as_perseus_error
from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.comm.rendezvous import Meeting, flags, leave_refusal, rendezvous
from perseus_ds.runtime.event_log import log_line
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.shutdown import at_exit
from perseus_ds.runtime.startup.begin import begin

_sessions: WeakKeyDictionary[object, Session] = WeakKeyDictionary()
_directories: WeakKeyDictionary[Session, tuple[str, Path]] = WeakKeyDictionary()
"""The run directory that a session was asked for, and the one that it writes to."""
_worlds: WeakKeyDictionary[Session, ref[object]] = WeakKeyDictionary()


def activate(host: object, adapter_of: Callable[[], Adapter], *, block: object) -> None:
    """Serve a host from this iteration on; collective over all ranks of the job.

    ``adapter_of`` checks the host and makes its adapter: a rank where it raises signs in with that refusal,
    and no rank is served. ``block`` is the block of the host's own configuration, None where the job was
    switched on by ``PERSEUS_CONFIG``. Rank 0's block and flags hold for all: launchers do not carry every
    variable to every node. What goes wrong is one line and training at default clocks, unless the block has
    ``"on_error": "raise"``.
    """
    speaker = 0
    try:
        _leave_stranded()
        settings = _settings(block)
        adapter, refusal = _own(adapter_of, block)
        meeting = rendezvous(settings, refusal=refusal)
        block, speaker = meeting.settings.get("block", block), meeting.speaker
        config = _wanted(meeting, settings)
        if config is None:
            return
        assert adapter is not None
        engine = 1 + sum(not one.left for one in _sessions.values())
        config = _own_directory(config, engine)
        session, context = begin(adapter, config, engine=engine, meeting=meeting)
    except Exception as error:  # noqa: BLE001  # the host wins
        refuse(error, block, speaker=speaker)
        return
    try:
        _sessions[host] = session
        _directories[session] = config.run_dir, context.directory.path
        _worlds[session] = ref(dist.group.WORLD)
        at_exit(session, context.directory.path, run=context.log.run, publishes=_rank() == 0)
    except Exception as error:
        if session.fail(error):
            raise


def session_of(host: object) -> Session | None:
    """Return what serves a host, for who wants to look at it; None where nothing does."""
    return _sessions.get(host)


def deactivate(host: object) -> bool:
    """Give a host its own methods, and the GPU its own clocks, back; return whether it was served."""
    session = _sessions.pop(host, None)
    if session is None:
        return False
    session.end(well=True)
    return True


def _leave_stranded() -> None:
    """Let go of hosts whose ranks have parted: the job has made another process group in this process."""
    for session in list(_sessions.values()):
        if not session.left and _worlds[session]() is not dist.group.WORLD:
            session.leave()


def _own_directory(config: PerseusConfig, engine: int) -> PerseusConfig:
    """Give an engine files of its own: another one of this process may have the same block."""
    written = dict(_directories[one] for one in _sessions.values() if not one.left)
    if config.run_dir not in written:
        return config
    return replace(config, run_dir=str(written[config.run_dir] / f"engine{engine}"))


def decline(error: Exception, block: object) -> None:
    """Refuse a host whose first iteration cannot be waited for; the other ranks find the refusal there."""
    if dist.is_initialized():
        leave_refusal(as_perseus_error(error), _settings(block))
    refuse(error, block)


def refuse(error: Exception, block: object, *, speaker: int = 0) -> None:
    """Report why we are off, or raise if the user wants that."""
    if isinstance(block, dict) and block.get("on_error") == "raise":
        raise as_perseus_error(error)
    say(f"off, training goes on at default clocks: {error}", speaker=speaker)


def say(line: str, *, speaker: int = 0) -> None:
    """Log a line on one rank, before there is a session that could."""
    if _rank() == speaker:
        log_line(line)


def _own(adapter_of: Callable[[], Adapter], block: object) -> tuple[Adapter | None, PerseusError | None]:
    """This rank's adapter, or why it cannot be served."""
    try:
        if block is not None:
            refuse_two_blocks(os.environ)
        return adapter_of(), None
    except Exception as error:  # noqa: BLE001  # all others are told
        return None, as_perseus_error(error)


def _settings(block: object) -> dict[str, object]:
    """What this rank signs in with."""
    settings: dict[str, object] = {"flags": flags(os.environ), "block": block}
    if block is None:
        settings["file"] = text_digest(os.environ[ENABLED_BY_FILE])
    return settings | _block_of_all(block) if _rank() == 0 else settings


def _block_of_all(block: object) -> dict[str, object]:
    """Rank 0's block, its variables replaced by what they are here, or the error that all have then."""
    try:
        found = read_block(os.environ[ENABLED_BY_FILE]) if block is None else block
        return {"block": resolved(found) if isinstance(found, Mapping) else found}
    except Exception as error:  # noqa: BLE001  # all others wait for it
        refused = as_perseus_error(error)
        return {"error": [refused.message, refused.hint]}


def _wanted(meeting: Meeting, mine: Mapping[str, object]) -> PerseusConfig | None:
    """What rank 0 asks all for, None where it switches us off: then nobody minds who refuses.

    Raises:
        PerseusError: the block is refused, or a rank is missing or cannot be served.
    """
    if not meeting.settings:
        meeting.check()
    config = _agreed_config(meeting.settings, mine)
    if config is None or config.mode == "off":
        return None
    meeting.check()
    return config


def _agreed_config(agreed: Mapping[str, object], mine: Mapping[str, object]) -> PerseusConfig | None:
    """Read rank 0's block, as every rank does; None where it switches us off.

    Raises:
        ConfigError: the block is refused, or rank 0 could not read it.
    """
    if "error" in agreed:
        message, hint = cast("list[str]", agreed["error"])
        raise ConfigError(message, hint=hint)
    if "file" in mine and mine["file"] not in {None, agreed.get("file")}:
        _say_that_it_differs(os.environ[ENABLED_BY_FILE])
    found, environment = agreed["block"], agreed["flags"]
    assert isinstance(environment, dict)
    if isinstance(found, dict) and found.setdefault("enabled", "file" in agreed) is False:
        return None
    return parse(found, environment)


def _say_that_it_differs(file: str) -> None:
    """Report once on every node that its file is not the one that is used."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        line = f"[rank {_rank()}] {ENABLED_BY_FILE}={file} differs from rank 0's, which holds for all"
        log_line(line, level=logging.WARNING)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
