"""Remove energy bloat from pipeline training: a planned GPU clock for every instruction."""

from __future__ import annotations

from collections.abc import Mapping
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


def notify(run_dir: str | Path, *, pipeline: int, slowdown: float, reason: str = "") -> None:
    """Tell a running job that one of its pipelines takes ``slowdown`` times as long; 1 ends it.

    The same as ``perseus-ds notify``.

    Raises:
        OSError: the notice cannot be written.
        PerseusError: a bad number, no such pipeline, no running job, or a user who is not believed.
    """
    from perseus_ds.straggler.announcement.announcing import notify as announce  # noqa: PLC0415  # numpy only when called

    announce(run_dir, pipeline=pipeline, slowdown=slowdown, reason=reason)
