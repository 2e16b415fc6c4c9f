"""Make a real instruction last as long as a simulated GPU would need for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from perseus_ds.device.simulated import SimulatedGpu, Work

P = ParamSpec("P")
T = TypeVar("T")


def stretched(handler: Callable[P, T], gpu: SimulatedGpu, work: Work) -> Callable[P, T]:
    """Wrap an instruction's handler: the GPU is busy with ``work`` while it runs, and until that is done.

    A handler that takes longer than the GPU keeps it busy to its own end; `Truth` counts that as an
    overrun. A handler that fails leaves the GPU idle.
    """

    @wraps(handler)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        task = gpu.begin(work)
        try:
            result = handler(*args, **kwargs)
        except BaseException:
            gpu.abandon(task)
            raise
        gpu.release(task)
        gpu.wait(task)
        return result

    return run
