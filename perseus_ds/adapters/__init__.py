"""The rooms that know a training framework; none imports another."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from perseus_ds.errors import EngineError

_DOORS = ("deepspeed", "deepspeed_zero", "megatron", "torch_pipelining")
"""Adapters, by module; the first whose door serves a host gets it, ours before those of other packages."""


def door_of(host: object) -> ModuleType:
    """Return the door that a host belongs to.

    A door has ``serves(host)``, ``attach(host, config=...)``, ``detach(host)`` and ``watch(module)``, and
    imports nothing heavy before it is used.

    Raises:
        EngineError: no adapter knows such a thing.
    """
    others = [point.value for point in entry_points(group="perseus_ds.adapters")]
    for name in (*(f"perseus_ds.adapters.{name}" for name in _DOORS), *others):
        door = _import_adapter(name)
        if door.serves(host):
            return door
    raise EngineError(
        f"{type(host).__module__}.{type(host).__qualname__} is no engine that perseus_ds can attach to",
        hint=f"adapters: {', '.join((*_DOORS, *others))}",
    )


def _import_adapter(name: str) -> ModuleType:
    try:
        return import_module(name)
    except Exception as error:
        raise EngineError(
            f"the adapter {name} cannot be imported: {error}", hint="mend or uninstall its package"
        ) from error
