"""From a host's first training iteration to a session, or to one line that says why there is none."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import torch.distributed as dist

from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig, parse, read_block, text_digest
from perseus_ds.errors import EngineError, as_perseus_error
from perseus_ds.runtime.adapter import Adapter
from perseus_ds.runtime.comm.rendezvous import flags, rendezvous
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.shutdown import at_exit
from perseus_ds.runtime.startup.begin import begin

_sessions: WeakKeyDictionary[object, Session] = WeakKeyDictionary()
_directories: WeakKeyDictionary[Session, str] = WeakKeyDictionary()


def activate(host: object, adapter: Adapter, *, block: object) -> None:
    """Serve a host from this iteration on; collective over all ranks of the job.

    ``block`` is what the host's own configuration says, None where the job was switched on by
    ``PERSEUS_CONFIG``. Rank 0's block and flags hold for all: launchers do not carry every variable to every
    node. What goes wrong is one line on rank 0 and training at default clocks, unless the block says
    ``"on_error": "raise"``.
    """
    try:
        config = _agreed_config(block)
        if config is None or config.mode == "off":
            return
        engine = 1 + sum(not one.left for one in _sessions.values())
        config = _own_directory(config, engine)
        session = begin(adapter, config, engine=engine)
    except Exception as error:  # noqa: BLE001  # the host wins
        refuse(error, block)
        return
    _sessions[host] = session
    _directories[session] = config.run_dir
    at_exit(session, config.run_dir, publishes=_rank() == 0)


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


def _own_directory(config: PerseusConfig, engine: int) -> PerseusConfig:
    """Give an engine files of its own: another one of this process may have the same block."""
    if config.run_dir not in {_directories[one] for one in _sessions.values() if not one.left}:
        return config
    return replace(config, run_dir=str(Path(config.run_dir) / f"engine{engine}"))


def refuse(error: Exception, block: object) -> None:
    """Say why we are off, or raise if the user wants that."""
    if isinstance(block, dict) and block.get("on_error") == "raise":
        raise error
    say(f"off, training goes on at default clocks: {error}")


def say(line: str) -> None:
    """Print a line on rank 0, before there is a session that could."""
    if _rank() == 0:
        sys.stdout.write(f"perseus: {line}\n")
        sys.stdout.flush()


def _agreed_config(block: object) -> PerseusConfig | None:
    """Read rank 0's block on every rank.

    Raises:
        ConfigError: the block is refused.
        EngineError: a rank is missing, or rank 0 could not read the block.
    """
    mine: dict[str, object] = {"flags": flags(os.environ), "block": block}
    if block is None:
        mine["file"] = text_digest(os.environ[ENABLED_BY_FILE])
    if block is None and _rank() == 0:
        try:
            mine["block"] = read_block(os.environ[ENABLED_BY_FILE])
        except Exception as error:  # told to all ranks, which wait for it
            refused = as_perseus_error(error)
            rendezvous({"error": str(refused)})
            raise refused from error
    agreed = rendezvous(mine)
    if "error" in agreed:
        raise EngineError(str(agreed["error"]))
    if block is None and mine["file"] not in {None, agreed["file"]}:
        _say_that_it_differs(os.environ[ENABLED_BY_FILE])
    found, environment = agreed["block"], agreed["flags"]
    assert isinstance(environment, dict)
    if isinstance(found, dict) and found.setdefault("enabled", block is None) is False:
        return None
    return parse(found, environment)


def _say_that_it_differs(file: str) -> None:
    """Say once on every node that its file is not the one that is used."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        sys.stdout.write(
            f"perseus: [rank {_rank()}] {ENABLED_BY_FILE}={file} differs from rank 0's, which holds for all\n"
        )
        sys.stdout.flush()


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
