"""How a job comes to us: the module of its schedules, watched from its import on, or handed over."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from perseus_ds.adapters.megatron.seam import MODULE, PASS_NAMES, check_names
from perseus_ds.config import ENABLED_BY_FILE

if TYPE_CHECKING:
    from perseus_ds.adapters.megatron.one_pass import OnePass
    from perseus_ds.runtime.adapter import Adapter


def watch(module: ModuleType) -> None:
    """Serve the first model that trains in this module; called right after its import."""
    attach(module)


def serves(host: object) -> bool:
    """Whether this is megatron-core's module of schedules."""
    return isinstance(host, ModuleType) and host.__name__ == MODULE


def attach(module: ModuleType, *, config: Mapping[str, object] | None = None) -> None:
    """Serve the first model that trains in this module, from its first training pass on, if it is asked for.

    ``config`` is a block given in code; without it ``PERSEUS_CONFIG`` states. Calling it again does nothing.
    What goes wrong is one line in the log and training at default clocks, unless the block has ``"on_error":
    "raise"``.
    """
    if config is None and not os.environ.get(ENABLED_BY_FILE):
        return
    from perseus_ds.adapters.megatron.wrapping import Wrapping, wrappings_of  # noqa: PLC0415  # torch
    from perseus_ds.runtime.startup.activation import activate, decline  # noqa: PLC0415

    block = None if config is None else {"enabled": True, **config}
    try:
        check_names(module, PASS_NAMES)
    except Exception as error:  # noqa: BLE001  # the host wins
        decline(error, block)
        return
    if any(wrappings_of(module)):
        return

    def first(present: OnePass, call: Callable[[], object]) -> object:
        if not present.trains:
            return call()
        waiting.remove()
        activate(module, partial(_adapter, present), block=block)
        return getattr(module, present.name)(**present.keywords)

    waiting = Wrapping(module, first)


def detach(module: ModuleType) -> None:
    """Give the module its own functions and the GPU its own clocks back."""
    from perseus_ds.adapters.megatron.wrapping import wrappings_of  # noqa: PLC0415
    from perseus_ds.runtime.startup.activation import deactivate  # noqa: PLC0415

    deactivate(module)
    for waiting in wrappings_of(module):
        waiting.remove()


def _adapter(first: OnePass) -> Adapter:
    from perseus_ds.adapters.megatron.adapter import MegatronAdapter  # noqa: PLC0415

    return MegatronAdapter(first)
