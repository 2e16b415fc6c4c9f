"""How an engine comes to us: when it is built, or when somebody hands it over."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import torch.distributed as dist

from perseus_ds.adapters.deepspeed.seam import (
    PipelineEngine,
    PipeSchedule,
    check,
    crashes_with_timers,
    deepspeed_version,
    is_training,
    raw_config,
)
from perseus_ds.config import parse

if TYPE_CHECKING:  # every pipeline job passes here: those without us do not wait for the solver
    from perseus_ds.runtime.lifecycle.session import Session

_sessions: WeakKeyDictionary[object, Session] = WeakKeyDictionary()
_watched: WeakSet[type] = WeakSet()


def watch_constructions(module: ModuleType) -> None:
    """Look at every PipelineEngine after it is built; called once DeepSpeed's pipeline module is there."""
    kind = module.PipelineEngine
    if kind in _watched:
        return
    _watched.add(kind)
    original = kind.__init__

    @wraps(original)
    def built(engine: object, *args: object, **kwargs: object) -> None:
        original(engine, *args, **kwargs)
        attach(engine)

    kind.__init__ = built


def attach(engine: object) -> None:
    """Serve this engine from its first training iteration on, if its configuration asks for us.

    Waiting until then lets subclasses finish their construction. Calling it again, or for an engine
    without an enabled ``perseus`` block, does nothing. What goes wrong is one line in the log and training
    at default clocks, unless the block says ``"on_error": "raise"``.
    """
    content = raw_config(engine)
    block = content.get("perseus")
    if block is None or (isinstance(block, dict) and block.get("enabled", False) is False):
        return
    if "_exec_schedule" in vars(engine):
        return
    try:
        found = check(engine)
        if _autotuning(content):
            _say(engine, "off: autotuning measures the job itself")
            return
        _warn_of_timers(found, content)
        parse(block, {})
    except Exception as error:  # noqa: BLE001  # the host wins
        _refuse(engine, error)
        return
    _begin_with_first_batch(found)


def detach(engine: object) -> None:
    """Give the engine its own methods and the GPU its own clocks back; collective in effect, not in kind."""
    session = _sessions.pop(engine, None)
    if session is not None:
        session.end(well=True)
    else:
        vars(engine).pop("_exec_schedule", None)


def _begin_with_first_batch(engine: PipelineEngine) -> None:
    original = engine._exec_schedule  # noqa: SLF001  # the seam

    @wraps(original)
    def first(pipe_schedule: PipeSchedule) -> None:
        if is_training(pipe_schedule):
            vars(engine).pop("_exec_schedule", None)
            _begin(engine, pipe_schedule)
            engine._exec_schedule(pipe_schedule)  # noqa: SLF001  # ours by now, or DeepSpeed's own
        else:
            original(pipe_schedule)

    engine._exec_schedule = first  # type: ignore[method-assign]  # noqa: SLF001


def _begin(engine: PipelineEngine, pipe_schedule: PipeSchedule) -> None:
    from perseus_ds.runtime.comm.rendezvous import flags, rendezvous  # noqa: PLC0415
    from perseus_ds.runtime.lifecycle.begin import begin, effective_config  # noqa: PLC0415  # heavy, and only now needed
    from perseus_ds.runtime.lifecycle.shutdown import at_exit  # noqa: PLC0415

    try:
        config = effective_config(engine, rendezvous(flags(os.environ)))
        if config is None or config.mode == "off":
            return
        session = begin(engine, pipe_schedule, config)
    except Exception as error:  # noqa: BLE001  # the host wins
        _refuse(engine, error)
        return
    _sessions[engine] = session
    at_exit(session, config.run_dir, publishes=dist.get_rank() == 0)


def _refuse(engine: object, error: Exception) -> None:
    """Say why we are off, or raise if the user wants that."""
    block = raw_config(engine).get("perseus")
    if isinstance(block, dict) and block.get("on_error") == "raise":
        raise error
    _say(engine, f"off, training goes on at default clocks: {error}")


def _say(engine: object, line: str) -> None:
    if getattr(engine, "global_rank", 0) == 0:
        sys.stdout.write(f"perseus: {line}\n")
        sys.stdout.flush()


def _autotuning(content: Mapping[str, object]) -> bool:
    return _enabled(content.get("autotuning"))


def _warn_of_timers(engine: PipelineEngine, content: Mapping[str, object]) -> None:
    """Say beforehand what will otherwise look like our doing."""
    timers = content.get("wall_clock_breakdown") is True or _enabled(content.get("flops_profiler"))
    if timers and engine.num_stages > 1 and crashes_with_timers(deepspeed_version()):
        _say(
            engine,
            f"DeepSpeed {deepspeed_version()} crashes pipeline jobs with wall_clock_breakdown or "
            "flops_profiler on ('timer has already been started'), with us or without: turn both off",
        )


def _enabled(section: object) -> bool:
    return isinstance(section, dict) and section.get("enabled", False) is True
