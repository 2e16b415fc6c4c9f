"""How a pipeline schedule comes to us: when it is built, or when somebody hands it over."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType

from perseus_ds.adapters.replacing import after_building, before_first, take_back


def watch(module: ModuleType) -> None:
    """Look at every schedule after it is built; called once torch's schedules are there."""
    after_building(module._PipelineSchedule, attach)  # noqa: SLF001  # the seam: the base of all of them


def serves(host: object) -> bool:
    """Whether this is a schedule of torch.distributed.pipelining's."""
    return any(kind.__name__ == "_PipelineSchedule" for kind in type(host).__mro__)


def attach(schedule: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this schedule from its first training step on.

    ``config`` is a block given in code; without it ``PERSEUS_CONFIG`` states. Waiting until then lets
    subclasses write their orders down. Calling it again does nothing. What goes wrong is one line in the log
    and training at default clocks, unless the block has ``"on_error": "raise"``.
    """
    if config is None and not os.environ.get("PERSEUS_CONFIG"):
        return
    if "step" in vars(schedule):
        return
    block = None if config is None else {"enabled": True, **config}

    def begin(*args: object, **kwargs: object) -> bool:
        if not getattr(schedule, "_has_backward", True):
            return False
        take_back(schedule)
        _activate(schedule, block, (*args, *kwargs.values()))
        return True

    before_first(schedule, "step", begin)


def detach(schedule: object) -> None:
    """Give the schedule its own methods and the GPU its own clocks back."""
    from perseus_ds.runtime.startup.activation import deactivate  # noqa: PLC0415

    deactivate(schedule)
    take_back(schedule)


def _activate(host: object, block: object, inputs: tuple[object, ...]) -> None:
    from perseus_ds.adapters.pipelining.adapter import PipeliningAdapter  # noqa: PLC0415
    from perseus_ds.adapters.pipelining.seam import check  # noqa: PLC0415
    from perseus_ds.runtime.startup.activation import activate  # noqa: PLC0415

    activate(host, lambda: PipeliningAdapter(check(host), _shapes(inputs)), block=block)


def _shapes(inputs: tuple[object, ...]) -> str:
    """Write down the shapes of a batch: "8x128 8x128"."""
    shapes = [getattr(one, "shape", None) for one in inputs]
    return " ".join("x".join(map(str, shape)) for shape in shapes if shape is not None)
