"""Entry point that PyTorch calls after ``import torch``: wait for training frameworks, and nothing else.

Standard library only, never raises, does its work once. The finder stays first in ``sys.meta_path`` until
every module that it waits for has been imported. Frameworks whose own configuration has no place for our
block are waited for only where ``PERSEUS_CONFIG`` is set.

Source: the ``torch.backends`` entry-point group, documented as autoload since PyTorch 2.5; the pattern of a
post-import hook is that of PEP 369 and wrapt.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module, util
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from threading import get_ident
from types import ModuleType

ADAPTERS = {
    "deepspeed.runtime.pipe.engine": "perseus_ds.adapters.deepspeed",
    "deepspeed.runtime.engine": "perseus_ds.adapters.deepspeed_zero",
}
"""Modules that show that a framework is there, and the adapter that watches it."""

ADAPTERS_BY_FILE = {
    "megatron.core.pipeline_parallel.schedules": "perseus_ds.adapters.megatron",
    "torch.distributed.pipelining.schedules": "perseus_ds.adapters.torch_pipelining",
}
"""The same for frameworks that ``PERSEUS_CONFIG`` alone can switch on, as those of other packages are."""


def _adapters_of_others() -> dict[str, str]:
    """Adapters in other packages: the module that each waits for, and its own.

    An entry point of the group ``perseus_ds.adapters`` is named after the one and points to the other.
    """
    return {point.name: point.value for point in entry_points(group="perseus_ds.adapters")}


def arm() -> None:
    """Have every engine looked at when it is built."""
    try:
        adapters = dict(ADAPTERS)
        if os.environ.get("PERSEUS_CONFIG"):
            adapters = _adapters_of_others() | ADAPTERS_BY_FILE | adapters
        for name in [name for name in adapters if name in sys.modules]:
            _watch_module(sys.modules[name], adapters.pop(name))
        if adapters and not any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Awaiting(adapters))
    except Exception as error:  # noqa: BLE001  # an exception here would break `import torch`
        logging.getLogger("perseus_ds").warning("not armed: %s", error)


def _watch_module(module: ModuleType, adapter: str) -> None:
    import_module(adapter).watch(module)  # only jobs with this framework pay


class _Awaiting(MetaPathFinder):
    """Have the finders behind this one find awaited modules, and run each with one more line at the end."""

    def __init__(self, adapters: dict[str, str]) -> None:
        self._adapters = adapters
        self._searching: set[tuple[str, int]] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target  # `util.find_spec` looks them up itself
        search = fullname, get_ident()
        if fullname not in self._adapters or search in self._searching:
            return None
        self._searching.add(search)  # `util.find_spec` asks this finder, too
        try:
            spec = util.find_spec(fullname)
        finally:
            self._searching.discard(search)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _PassingLoader(spec.loader, partial(self._ran, fullname))
        return spec

    def _ran(self, fullname: str, module: ModuleType) -> None:
        adapter = self._adapters.pop(fullname, None)
        if not self._adapters and self in sys.meta_path:
            sys.meta_path.remove(self)
        if adapter is not None:
            _watch_module(module, adapter)


class _PassingLoader(Loader):
    """Run a module with its own loader, then report it; whatever else it is asked for is that loader's."""

    def __init__(self, loader: Loader, ran: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._ran = ran

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._ran(module)
        except Exception as error:  # noqa: BLE001  # the host wins: the framework works without us
            logging.getLogger("perseus_ds").warning("not armed: %s", error)
