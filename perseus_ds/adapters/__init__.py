"""Modules that know a training framework; none imports another."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from perseus_ds.errors import EngineError

_ADAPTERS = ("deepspeed", "deepspeed_zero", "megatron", "torch_pipelining")
"""Adapters, by module; the first that serves a host gets it, ours before those of other packages."""


def adapter_of(host: object) -> ModuleType:
    """Return the adapter module of a host.

    It has ``serves(host)``, ``attach(host, config=...)``, ``detach(host)`` and ``watch(module)``, and
    imports nothing heavy before it is used.

    Raises:
        EngineError: no adapter knows such a thing.
    """
    others = [point.value for point in entry_points(group="perseus_ds.adapters")]
    for name in (*(f"perseus_ds.adapters.{name}" for name in _ADAPTERS), *others):
        adapter = _import_adapter(name)
        if adapter.serves(host):
            return adapter
    raise EngineError(
        f"{type(host).__module__}.{type(host).__qualname__} is no engine that perseus_ds can attach to",
        hint=f"adapters: {', '.join((*_ADAPTERS, *others))}",
    )


def _import_adapter(name: str) -> ModuleType:
    try:
        return import_module(name)
    except Exception as error:
        raise EngineError(
            f"the adapter {name} cannot be imported: {error}", hint="mend or uninstall its package"
        ) from error
