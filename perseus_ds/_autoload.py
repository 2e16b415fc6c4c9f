"""What PyTorch calls at the end of ``import torch``: wait for training frameworks, and nothing else.

Standard library only, never raises, does its work once. The finder stays first in ``sys.meta_path`` until
every module that it waits for has been imported. Frameworks whose own configuration has no place for our
block are waited for only where ``PERSEUS_CONFIG`` is set.

Source: the ``torch.backends`` entry-point group, documented as autoload since PyTorch 2.5; the pattern of a
post-import hook is that of PEP 369 and wrapt.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from types import ModuleType

DOORS = {
    "deepspeed.runtime.pipe.engine": "perseus_ds.adapters.deepspeed.door",
    "deepspeed.runtime.engine": "perseus_ds.adapters.zero.door",
}
"""Modules that show that a framework is there, and the door that watches it."""

DOORS_BY_FILE = {
    "megatron.core.pipeline_parallel.schedules": "perseus_ds.adapters.megatron.door",
    "torch.distributed.pipelining.schedules": "perseus_ds.adapters.pipelining.door",
}
"""The same for frameworks that ``PERSEUS_CONFIG`` alone can switch on, as those of other packages are."""


def _doors_of_others() -> dict[str, str]:
    """Doors of adapters in other packages: the module that each waits for, and the door's own.

    An entry point of the group ``perseus_ds.adapters`` is named after the one and points to the other.
    """
    return {point.name: point.value for point in entry_points(group="perseus_ds.adapters")}


def arm() -> None:
    """Have every engine looked at when it is built."""
    try:
        doors = dict(DOORS)
        if os.environ.get("PERSEUS_CONFIG"):
            doors = _doors_of_others() | DOORS_BY_FILE | doors
        for name in [name for name in doors if name in sys.modules]:
            _arrived(sys.modules[name], doors.pop(name))
        if doors and not any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Awaiting(doors))
    except Exception as error:  # noqa: BLE001  # an exception here would break `import torch`
        sys.stderr.write(f"perseus: not armed: {error}\n")


def _arrived(module: ModuleType, door: str) -> None:
    import_module(door).watch(module)  # only jobs with this framework pay


class _Awaiting(MetaPathFinder):
    """Find awaited modules as everybody would, and run each with one more line at the end."""

    def __init__(self, doors: dict[str, str]) -> None:
        self._doors = doors

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        door = self._doors.pop(fullname, None)
        if door is None:
            return None
        if not self._doors:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)  # type: ignore[arg-type]  # passed on as it came
        if spec is not None and spec.loader is not None:
            spec.loader = _PassingLoader(spec.loader, door)
        return spec


class _PassingLoader(Loader):
    """Run a module with its own loader, then open the door."""

    def __init__(self, loader: Loader, door: str) -> None:
        self._loader = loader
        self._door = door

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _arrived(module, self._door)
        except Exception as error:  # noqa: BLE001  # the host wins: the framework works without us
            sys.stderr.write(f"perseus: not armed: {error}\n")
