"""Remove energy bloat from pipeline training: a planned GPU clock for every instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

__version__ = "0.1.0"


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve an engine, by ``config`` (a ``perseus`` block) or by the enabled block of its own configuration.

    Not needed where the start-up hook works (``perseus-ds hook status``); harmless where it did already.

    Raises:
        UnsupportedEngineError: the object is of no framework that we know.
    """
    from perseus_ds.adapters import door_of  # noqa: PLC0415  # importing us imports no framework

    door_of(engine).attach(engine, config=config)


def detach(engine: object) -> None:
    """Stop serving an engine: its own methods, and the GPU's own clocks, are back when this returns."""
    from perseus_ds.adapters import door_of  # noqa: PLC0415

    door_of(engine).detach(engine)


def set_load(function: Callable[[int, int], object] | None) -> None:
    """State what each microbatch of an iteration works on, before it begins; None takes the function back.

    ``function(iteration, microbatches)`` returns one entry for each microbatch: its number of tokens, or a
    list of the lengths of its sequences. Call it on every rank, before the first iteration. A function that
    raises, takes longer than ``straggler.load_limit_s`` or returns anything else is not asked again.

    Raises:
        ConfigError: it is no function.
    """
    from perseus_ds.config.load_function import set_function  # noqa: PLC0415  # importing us imports nothing

    set_function(function)


def notify(run_dir: str | Path, *, pipeline: int, slowdown: float, reason: str = "") -> None:
    """Inform a running job that one of its pipelines takes ``slowdown`` times as long; 1 ends it.

    The same as ``perseus-ds notify``.

    Raises:
        OSError: the notice cannot be written.
        PerseusError: a bad number, no such pipeline, no running job, or a user who is not believed.
    """
    from perseus_ds.straggler.announcement.announcing import notify as announce  # noqa: PLC0415  # numpy only when called

    announce(run_dir, pipeline=pipeline, slowdown=slowdown, reason=reason)


def set_power_cap(
    run_dir: str | Path,
    watts: float | None,
    *,
    per: str = "pipeline",
    until_s: float | None = None,
    ramp_w_per_s: float = 0.0,
    reason: str = "",
) -> None:
    """Have a running job hold a ceiling on mean power: of each pipeline, or of the ``"job"``; None lifts it.

    The same as ``perseus-ds notify --power-cap``; ``until_s`` is in seconds since 1970.

    Raises:
        OSError: the ceiling cannot be written.
        PerseusError: a bad number, no running job, or a user who is not believed.
    """
    from perseus_ds.straggler.ceiling.power_cap import PowerCap, per_of  # noqa: PLC0415  # numpy only when called
    from perseus_ds.straggler.ceiling.setting import set_power_cap as cap_power  # noqa: PLC0415

    cap = PowerCap(watts, per_of(per), until_s=until_s, ramp_w_per_s=ramp_w_per_s, reason=reason)
    cap_power(run_dir, cap)
