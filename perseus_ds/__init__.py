"""Remove energy bloat from pipeline training: a planned GPU clock for every instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseus_ds.runtime.energy_monitor import EnergyMonitor as EnergyMonitor  # public here

__version__ = "0.2.0"


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve an engine, by ``config`` (a ``perseus`` block) or by the enabled block of its own configuration.

    Not needed where the start-up hook works (``perseus-ds doctor``); harmless where it did already.

    Raises:
        EngineError: the object is of no framework that we know.
    """
    from perseus_ds.adapters import adapter_of  # noqa: PLC0415  # importing us imports no framework

    adapter_of(engine).attach(engine, config=config)


def detach(engine: object) -> None:
    """Stop serving an engine: its own methods, and the GPU's own clocks, are back when this returns."""
    from perseus_ds.adapters import adapter_of  # noqa: PLC0415

    adapter_of(engine).detach(engine)


def set_load(function: Callable[[int, int], object] | None) -> None:
    """State what each microbatch of an iteration works on, before it begins; None takes the function back.

    ``function(iteration, microbatches)`` returns one entry for each microbatch: its number of tokens, or a
    list of the lengths of its sequences. Call it on every rank, before the first iteration. The function runs
    on the training thread: one that raises, returns anything else, or takes longer than 0.1 s three times is
    not called again.

    Raises:
        ConfigError: it is no function.
    """
    from perseus_ds.runtime.user_loads import set_function  # noqa: PLC0415  # importing us imports nothing

    set_function(function)


def notify(
    run_dir: str | Path,
    *,
    pipeline: int | None = None,
    host: str | None = None,
    slowdown: float | None = None,
    power_w: float | None = None,
    until_s: float | None = None,
    clear: bool = False,
) -> None:
    """Inform a running job that a pipeline takes ``slowdown`` times as long, or cap its mean power.

    The same as ``perseus-ds notify``. ``slowdown`` is for one pipeline, or for every pipeline with a GPU on
    ``host``; 1 ends it. ``power_w`` is for the whole job. ``until_s`` is in seconds since 1970. ``clear``
    removes all notices.

    Raises:
        OSError: the notice cannot be written.
        PerseusError: a bad number, no such pipeline or host, or no running job.
    """
    from perseus_ds.straggler.notices import notify as announce  # noqa: PLC0415  # numpy only when called

    announce(
        run_dir,
        pipeline=pipeline,
        host=host,
        slowdown=slowdown,
        power_w=power_w,
        until_s=until_s,
        clear=clear,
    )


def __getattr__(name: str) -> object:
    """Import `EnergyMonitor` when it is first used: importing us imports nothing."""
    if name != "EnergyMonitor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perseus_ds.runtime.energy_monitor import EnergyMonitor  # noqa: PLC0415

    return EnergyMonitor
