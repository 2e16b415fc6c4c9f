"""How a pipeline engine comes to us: when it is built, or when somebody hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType

from perseus_ds.adapters.deepspeed.seam import (
    PipelineEngine,
    PipeSchedule,
    check,
    crashes_with_timers,
    is_training,
)
from perseus_ds.adapters.deepspeed_engine.facts import asked, deepspeed_version, is_pipeline, switched_on
from perseus_ds.adapters.replacing import after_building, before_first, take_back


def watch(module: ModuleType) -> None:
    """Look at every PipelineEngine after it is built; called once DeepSpeed's pipeline module is there."""
    after_building(module.PipelineEngine, attach)


def serves(host: object) -> bool:
    """Whether this is a pipeline engine of DeepSpeed's."""
    return is_pipeline(host)


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this engine from its first training iteration on, if it is asked for.

    ``config`` is a block given in code; without it the engine's own configuration, or ``PERSEUS_CONFIG``,
    states.

    Waiting until then lets subclasses finish their construction. Calling it again, or for an engine
    without an enabled ``perseus`` block, does nothing. What goes wrong is one line in the log and training
    at default clocks, unless the block has ``"on_error": "raise"``.
    """
    wanted = asked(engine, config)
    if wanted is None or "_exec_schedule" in vars(engine):
        return
    from perseus_ds.runtime.startup.activation import decline, say  # noqa: PLC0415  # heavy, and now needed

    try:
        found = check(engine)
    except Exception as error:  # noqa: BLE001  # the host wins
        decline(error, wanted.block)
        return
    if wanted.tunes_itself:
        say("off: autotuning measures the job itself")
        return
    if warning := _timers(found, wanted.content):
        say(warning)

    def begin(pipe_schedule: PipeSchedule) -> bool:
        if not is_training(pipe_schedule):
            return False
        take_back(engine)
        _activate(found, pipe_schedule, wanted.block)
        return True

    before_first(engine, "_exec_schedule", begin)


def detach(engine: object) -> None:
    """Give the engine its own methods and the GPU its own clocks back; collective in effect, not in kind."""
    from perseus_ds.runtime.startup.activation import deactivate  # noqa: PLC0415

    deactivate(engine)
    take_back(engine)


def _activate(engine: PipelineEngine, pipe_schedule: PipeSchedule, block: object) -> None:
    from perseus_ds.adapters.deepspeed.adapter import DeepSpeedAdapter  # noqa: PLC0415
    from perseus_ds.runtime.startup.activation import activate  # noqa: PLC0415

    activate(engine, partial(DeepSpeedAdapter, engine, pipe_schedule), block=block)


def _timers(engine: PipelineEngine, content: Mapping[str, object]) -> str:
    """Describe beforehand what will otherwise look like our doing."""
    on = content.get("wall_clock_breakdown") is True or switched_on(content.get("flops_profiler"))
    if not on or engine.num_stages == 1 or not crashes_with_timers(deepspeed_version()):
        return ""
    return (
        f"DeepSpeed {deepspeed_version()} crashes pipeline jobs with wall_clock_breakdown or "
        "flops_profiler on ('timer has already been started'), with us or without: turn both off"
    )
