"""Captures of CUDA graphs, by whomever: when one is under way, so that nothing of ours comes into it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from perseus_ds.runtime.measure.cuda.calls import Cuda
from perseus_ds.runtime.measure.threads import Threads


class Captures:
    """Stands around ``CUDAGraph.capture_begin`` and ``capture_end``, through which all of Python captures.

    PyTorch's own ``torch.cuda.graph``, Inductor, ``make_graphed_callables``, Transformer Engine and Megatron
    all call these two. ``begun`` counts captures, ``under_way`` those that have not ended. A holder of
    ``lock`` keeps a capture from beginning. On HIP every call of ours is made so, since no mode of a thread
    protects a capture there.
    """

    def __init__(self, cuda: Cuda, threads: Threads) -> None:
        self.begun = 0
        self.under_way = 0
        self.lock = threads.lock()
        self._kind = cuda.graph_type
        self._originals: dict[str, Any] = {}
        if self._kind is not None:
            self._put("capture_begin", self._begins)
            self._put("capture_end", self._ends)

    def remove(self) -> None:
        """Give the class its own methods back, unless somebody stands around ours; safe to call twice."""
        for name, original in self._originals.items():
            if getattr(vars(self._kind).get(name), "perseus_ds", None) is self:
                setattr(self._kind, name, original)
        self._originals = {}

    def _put(self, name: str, around: Callable[..., object]) -> None:
        original = getattr(self._kind, name)

        @wraps(original)
        def standing(*args: object, **kwargs: object) -> object:
            return around(original, *args, **kwargs)

        standing.perseus_ds = self  # type: ignore[attr-defined]  # how ours is recognised
        self._originals[name] = original
        setattr(self._kind, name, standing)

    def _begins(self, original: Callable[..., object], *args: object, **kwargs: object) -> object:
        with self.lock:
            self.begun += 1
            self.under_way += 1
        try:
            return original(*args, **kwargs)
        except BaseException:
            self.under_way -= 1
            raise

    def _ends(self, original: Callable[..., object], *args: object, **kwargs: object) -> object:
        try:
            return original(*args, **kwargs)
        finally:
            self.under_way = max(0, self.under_way - 1)
