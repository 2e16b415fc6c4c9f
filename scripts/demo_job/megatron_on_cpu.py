"""Let megatron-core run on CPUs: what it asks of CUDA does nothing, what it puts there stays here.

A test aid: schedules, transfers, reductions, models and optimizers are Megatron's own. Streams and events do
nothing, because a CPU has none; memory counters say 0. For processes of their own only: torch is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, wraps
from typing import Any

import torch
import torch.distributed as dist

_CPU = torch.device("cpu")
_FACTORIES = [
    "arange",
    "empty",
    "empty_like",
    "full",
    "ones",
    "ones_like",
    "rand",
    "randn",
    "tensor",
    "zeros",
    "zeros_like",
]
_COUNTERS = ["max_memory_allocated", "memory_allocated", "memory_reserved"]
_SILENT = ["reset_peak_memory_stats", "synchronize"]


class _Nothing:
    """A stream or an event: everything has happened already."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record_event(self) -> _Nothing:
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@cache
def pretend() -> None:
    """Change torch in this process, once."""
    for name in _FACTORIES:
        setattr(torch, name, _here(getattr(torch, name)))
    cuda: Any = torch.cuda
    for name in _COUNTERS:
        setattr(cuda, name, lambda *_: 0)
    for name in _SILENT:
        setattr(cuda, name, lambda *_: None)
    cuda.current_device = lambda: _CPU
    cuda.is_current_stream_capturing = lambda: False
    cuda.Stream = cuda.Event = _Nothing
    cuda.current_stream = lambda *_: _Nothing()
    cuda.stream = lambda _: nullcontext()
    cuda.nvtx.range = lambda *_, **__: nullcontext()
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None
    _pretend_random(cuda)
    _pretend_types()
    _pretend_exchange()


def _here(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(factory)
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401
        device = kwargs.get("device")
        if device is not None and (isinstance(device, int) or torch.device(device).type == "cuda"):
            kwargs["device"] = _CPU
        return factory(*args, **kwargs)

    return made


def _pretend_random(cuda: Any) -> None:  # noqa: ANN401
    """Give the GPU that is not there a random state of its own, which nothing draws from.

    Torch would keep every state that Megatron sets, with a traceback, for a GPU that it may find later.
    """
    from megatron.core.tensor_parallel import random  # noqa: PLC0415  (it changes torch when imported)

    random._lazy_call = lambda _: None  # noqa: SLF001
    generator = torch.Generator()
    for place in (cuda, cuda.random):
        place.get_rng_state = lambda *_, **__: generator.get_state()
        place.manual_seed = generator.manual_seed


def _pretend_exchange() -> None:
    """Take the splits of an exchange as they would be after a copy from a GPU: as numbers."""
    exchange: Any = dist.all_to_all_single

    @wraps(exchange)
    def exchanged(output: torch.Tensor, given: torch.Tensor, *splits: Any, **kwargs: Any) -> object:  # noqa: ANN401
        there = {key: _numbers(value) for key, value in kwargs.items()}
        return exchange(output, given, *map(_numbers, splits), **there)

    vars(dist)["all_to_all_single"] = exchanged


def _numbers(splits: object) -> object:
    return splits.tolist() if isinstance(splits, torch.Tensor) else splits


def _pretend_types() -> None:
    """Name tensors as the distributed optimizer knows them: ``torch.cuda.FloatTensor``."""
    tensor: Any = torch.Tensor
    type_of = tensor.type

    def type_(self: torch.Tensor, *args: object, **kwargs: object) -> object:
        found = type_of(self, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.") if isinstance(found, str) else found

    tensor.type = type_
    tensor.cuda = lambda self, *_, **__: self
    tensor.record_stream = lambda *_: None
