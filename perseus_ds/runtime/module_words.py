"""How a model's modules are run, where that changes what they take: a part of the job's fingerprint.

Every adapter describes its own modules by it (`Place.modules`). What a module's own code does (a call of
``torch.utils.checkpoint`` in its forward) cannot be seen from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import torch
from torch.distributed._composable.contract import _get_registry
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, OffloadWrapper

PLAIN = "plain"
"""Nothing is recomputed, offloaded, compiled or run in another precision."""


def modules_in_words(modules: Iterable[torch.nn.Module], *, device_type: str) -> str:
    """Count what is checkpointed, offloaded and compiled, and name the precision of ``torch.autocast``.

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
