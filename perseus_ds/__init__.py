"""Remove energy bloat from pipeline training: a planned GPU clock for every instruction."""

from __future__ import annotations

__version__ = "0.1.0"


def attach(engine: object) -> None:
    """Serve a DeepSpeed pipeline engine whose configuration has an enabled ``perseus`` block.

    Not needed where the start-up hook works (``perseus-ds hook status``); harmless where it did already.
    """
    from perseus_ds.engine.doors import attach as serve  # noqa: PLC0415  # importing us imports no torch

    serve(engine)


def detach(engine: object) -> None:
    """Stop serving an engine: its own methods, and the GPU's own clocks, are back when this returns."""
    from perseus_ds.engine.doors import detach as leave  # noqa: PLC0415

    leave(engine)
