"""Facts that adapters report of a rank: its order, the weight of its modules, how they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch.distributed._composable.contract import _get_registry
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, OffloadWrapper

from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Place
from perseus_ds.schedule import Order, Schedule, validate, with_repeats_named


def join_orders(places: Iterable[Place], *, name: str) -> Schedule:
    """Join the orders of all ranks; replicas of one pipeline run the same.

    Transfers may come in any number for a microbatch, the n-th of a stage's kind with number n.

    Raises:
        EngineError: ranks of one place in the pipeline that run different orders.
        ScheduleError: orders that cannot run to their end.
    """
    orders: dict[int, Order] = {}
    unknown: dict[str, None] = {}
    for place in places:
        if orders.setdefault(place.pipeline_rank, place.order) != place.order:
            raise EngineError(
                f"the ranks of stage {place.pipeline_rank} run different schedules",
                hint="every replica has to run the same one",
            )
        unknown |= dict.fromkeys(place.unknown)
    ordered = tuple(orders[rank] for rank in sorted(orders))
    microbatches = 1 + max((i.microbatch for i in chain(*ordered) if i.kind.runs_forward), default=0)
    schedule = with_repeats_named(Schedule(name, microbatches, ordered, tuple(unknown)))
    validate(schedule)
    return schedule


_EMBEDDING = "Embedding"
_LEAST_MATMUL_DIM = 2


def matmul_weight(module: torch.nn.Module, *, embeddings: bool = False) -> int:
    """Count the weights that multiply; those of embeddings are looked up, and count only on demand."""
    return sum(
        parameter.numel()
        for part in module.modules()
        if embeddings or not _is_embedding(part)
        for parameter in part.parameters(recurse=False)
        if parameter.dim() >= _LEAST_MATMUL_DIM
    )


def _is_embedding(module: torch.nn.Module) -> bool:
    return any(_EMBEDDING in kind.__name__ for kind in type(module).__mro__)


PLAIN = "plain"
"""Nothing is recomputed, offloaded, compiled or run in another precision."""


def describe_modules(modules: Iterable[torch.nn.Module], *, device_type: str) -> str:
    """Count what is checkpointed, offloaded and compiled, and name the precision of ``torch.autocast``.

    A part of the job's fingerprint, since durations depend on it. What a module's own code does (a call of
    ``torch.utils.checkpoint`` in its forward) cannot be seen from outside.

    Source: ``torch.distributed._composable.contract``, ``Module._compiled_call_impl`` and
    ``torch._dynamo.OptimizedModule`` @ torch 2.13; ``PipelineModule.activation_checkpoint_interval`` @
    deepspeed 0.19.8; ``gradient_checkpointing`` @ transformers.
    """
    counts = Counter(word for module in modules for part in module.modules() for word in _words_of(part))
    words = [f"{count} {word}" for word, count in sorted(counts.items())]
    if torch.is_autocast_enabled(device_type):
        words.append(f"autocast to {_name(torch.get_autocast_dtype(device_type))}")
    return ", ".join(words) or PLAIN


def _words_of(part: torch.nn.Module) -> Iterator[str]:
    if isinstance(part, CheckpointWrapper):
        selective = "context_fn" in getattr(part.checkpoint_fn, "keywords", {})
        yield "checkpointed selectively" if selective else "checkpointed"
    elif "checkpoint" in (_get_registry(part) or {}) or getattr(part, "gradient_checkpointing", False):
        yield "checkpointed"
    interval = getattr(part, "activation_checkpoint_interval", 0)
    if isinstance(interval, int) and interval > 0:
        yield f"checkpointed every {interval} layers"
    if isinstance(part, OffloadWrapper):
        yield "offloaded"
    if getattr(part, "_compiled_call_impl", None) is not None or type(part).__name__ == "OptimizedModule":
        yield "compiled"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
