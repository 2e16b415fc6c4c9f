"""From a host's first training iteration to a session, or to one line that says why there is none."""

from __future__ import annotations

import os
import sys
from weakref import WeakKeyDictionary

import torch.distributed as dist

from perseus_ds.config import ENABLED_BY_FILE, PerseusConfig, parse, read_block
from perseus_ds.errors import EngineError, as_perseus_error
from perseus_ds.runtime.adapter import Adapter, Batch
from perseus_ds.runtime.comm.rendezvous import flags, rendezvous
from perseus_ds.runtime.lifecycle.session import Session
from perseus_ds.runtime.lifecycle.shutdown import at_exit
from perseus_ds.runtime.startup.begin import begin

_sessions: WeakKeyDictionary[object, Session] = WeakKeyDictionary()


def activate(host: object, adapter: Adapter, batch: Batch, *, block: object) -> None:
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
        session = begin(adapter, batch, config)
    except Exception as error:  # noqa: BLE001  # the host wins
        refuse(error, block)
        return
    _sessions[host] = session
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
    found, environment = agreed["block"], agreed["flags"]
    assert isinstance(environment, dict)
    if isinstance(found, dict) and found.setdefault("enabled", block is None) is False:
        return None
    return parse(found, environment)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
