"""What PyTorch calls at the end of ``import torch``: wait for DeepSpeed's pipeline engine, and nothing else.

Standard library only, never raises, does its work once. The finder stays first in ``sys.meta_path`` until
the one module that it waits for is imported, and then takes itself out.

Source: the ``torch.backends`` entry-point group, documented as autoload since PyTorch 2.5; the pattern of a
post-import hook is that of PEP 369 and wrapt.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

AWAITED = "deepspeed.runtime.pipe.engine"


def arm() -> None:
    """Have every pipeline engine looked at when it is built."""
    try:
        if AWAITED in sys.modules:
            _arrived(sys.modules[AWAITED])
        elif not any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Awaiting())
    except Exception as error:  # noqa: BLE001  # an exception here would break `import torch`
        sys.stderr.write(f"perseus: not armed: {error}\n")


def _arrived(module: ModuleType) -> None:
    from perseus_ds.adapters.deepspeed.door import watch  # noqa: PLC0415  # only jobs with DeepSpeed pay

    watch(module)


class _Awaiting(MetaPathFinder):
    """Find the awaited module as everybody would, and run it with one more line at the end."""

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != AWAITED:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)  # type: ignore[arg-type]  # passed on as it came
        if spec is not None and spec.loader is not None:
            spec.loader = _Following(spec.loader)
        return spec


class _Following(Loader):
    """Run a module with its own loader, then tell that it is there."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _arrived(module)
        except Exception as error:  # noqa: BLE001  # the host wins: DeepSpeed works without us
            sys.stderr.write(f"perseus: not armed: {error}\n")
