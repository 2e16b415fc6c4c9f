"""How much a microbatch works on, read off what a framework was given: shapes, and what lies on the host."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeGuard

import torch

from perseus_ds.errors import ConfigError
from perseus_ds.schedule import Load

_BOUNDARIES = ("cu_seqlens_cpu", "cu_seqlens_q_cpu", "cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")
"""Where packed sequences begin and end: Megatron's ``packed_seq_params``, flash-attn, Transformers."""
_LENGTHS = ("seq_lens", "seqlens", "lengths", "sequence_lengths")
_PACKED = ("packed_seq_params",)
_TOKENS = ("input_ids", "tokens", "text")
_MASK = "attention_mask"
_GRIDS = ("image_grid_thw", "video_grid_thw")
_IMAGES = ("pixel_values", "images")
_PATCH = 3 * 16 * 16  # elements of an image that one token stands for
_MOST_READ = 1 << 22  # numbers of a mask: half a millisecond
_DEEPEST = 4


def counted(batch: object) -> Load | None:
    """Count a microbatch as a framework hands it over: a mapping, a tuple, a tensor, or all of these nested.

    Sequences are those that packing names, else rows; images count by their grid of patches or their pixels.
    A mask that leaves out padding shortens the attention and nothing else. Without any of these it is the
    first tensor's shape. Beside it, in a tuple, boundaries and masks are known by their content: pipelines
    hand over tensors without names. None where there is no tensor.

    A tensor on a device is never read: that would wait for it.
    """
    try:
        return _of_names(dict(_named(batch, _DEEPEST))) or _of_tuple(batch) or _of_first(batch)
    except (ConfigError, RuntimeError, TypeError, ValueError):
        return None


def chunks_counted(arguments: Iterable[object], microbatches: int) -> tuple[Load, ...] | None:
    """Count a whole batch that is split along its first dimension, as torch's schedules do."""
    whole = list(arguments)
    pieces = [_split(one, microbatches) for one in whole]
    loads = [counted(list(piece)) for piece in zip(*pieces, strict=True)] if whole else []
    found = tuple(load for load in loads if load is not None)
    return found if len(found) == microbatches else None


def _split(thing: object, parts: int) -> Sequence[object]:
    if isinstance(thing, torch.Tensor) and thing.dim():
        return torch.tensor_split(thing, parts)
    if isinstance(thing, Mapping):
        pieces = {key: _split(value, parts) for key, value in thing.items()}
        return [{key: value[n] for key, value in pieces.items()} for n in range(parts)]
    return [thing] * parts


def _named(thing: object, depth: int) -> Iterator[tuple[str, object]]:
    """Yield what bears a name, outermost last, so that it wins."""
    if depth and isinstance(thing, Mapping):
        for value in thing.values():
            yield from _named(value, depth - 1)
        for name in _PACKED:
            yield from vars(thing[name]).items() if hasattr(thing.get(name), "__dict__") else ()
        yield from ((str(name), value) for name, value in thing.items())
    elif depth and isinstance(thing, list | tuple):
        for value in thing:
            yield from _named(value, depth - 1)


def _of_names(named: Mapping[str, object]) -> Load | None:
    images = _images(named)
    boundaries = _first(named, _BOUNDARIES)
    if boundaries is not None:
        lengths = [max(0.0, end - start) for start, end in pairwise(boundaries)]
        return Load.of_lengths(chain(lengths, images))
    lengths_told = _first(named, _LENGTHS)
    if lengths_told is not None:
        return Load.of_lengths(chain(lengths_told, images))
    tokens = next((named[name] for name in _TOKENS if isinstance(named.get(name), torch.Tensor)), None)
    if not isinstance(tokens, torch.Tensor):
        return Load.of_lengths(images) if images else None
    load = Load.of_shape(tokens.shape) + Load.of_lengths(images)
    seen = _unmasked(named.get(_MASK), tokens.shape)
    return load if seen is None else Load(load.tokens, Load.of_lengths(chain(seen, images)).squares)


def _images(named: Mapping[str, object]) -> list[float]:
    """Tokens of every image: patches of its grid, else its pixels."""
    for name in _GRIDS:
        grid = named.get(name)
        if _readable(grid):
            return [float(one) for one in grid.reshape(-1, grid.shape[-1]).prod(dim=-1).tolist()]
    for name in _IMAGES:
        images = named.get(name)
        if isinstance(images, torch.Tensor) and images.dim() > 1:
            return [images[0].numel() / _PATCH] * len(images)
        if isinstance(images, list | tuple):
            return [one.numel() / _PATCH for one in images if isinstance(one, torch.Tensor)]
    return []


def _unmasked(mask: object, shape: torch.Size) -> list[float] | None:
    """Length of every row that a mask [samples, tokens] leaves; None where there is no such mask here."""
    if not _readable(mask) or mask.shape != shape:
        return None
    return [float(length) for length in (mask != 0).sum(dim=-1).flatten().tolist()]


def _first(named: Mapping[str, object], names: Sequence[str]) -> list[float] | None:
    """Return the first of these that is there and can be read."""
    for name in names:
        value = named.get(name)
        if _readable(value):
            return [float(one) for one in value.flatten().tolist()]
        if isinstance(value, list | tuple) and value and all(isinstance(v, int | float) for v in value):
            return [float(one) for one in value]
    return None


def _readable(thing: object) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(thing, torch.Tensor)
        and thing.device.type == "cpu"
        and 0 < thing.numel() <= _MOST_READ
        and not thing.is_complex()
    )


def _of_tuple(batch: object, depth: int = _DEEPEST) -> Load | None:
    """Count tensors without names by what states the sequences of the first one; None where nothing does."""
    if not depth or not isinstance(batch, list | tuple) or not batch:
        return None
    if isinstance(batch[0], list | tuple):
        return _of_tuple(batch[0], depth - 1)
    tensors = [one for one in batch if isinstance(one, torch.Tensor)]
    return _of_tensors(*tensors) if len(tensors) > 1 and tensors[0].dim() else None


def _of_tensors(first: torch.Tensor, *others: torch.Tensor) -> Load | None:
    """Count by the first of the others that bounds sequences of ``first``, or masks its rows."""
    for one in filter(_whole_numbers, others):
        if _bounds(one, {first.shape[0], math.prod(first.shape[:2])}):
            return _of_names({_BOUNDARIES[0]: one})
        if one.shape == first.shape[:2] and _keeps_beginnings(one):
            return _of_names({_TOKENS[0]: torch.empty(one.shape, device="meta"), _MASK: one})
    return None


def _whole_numbers(thing: torch.Tensor) -> bool:
    return _readable(thing) and not thing.is_floating_point()


def _bounds(numbers: torch.Tensor, tokens: Container[int]) -> bool:
    """Whether these are boundaries of packed sequences: ascending from 0 to the number of tokens."""
    found = numbers.flatten()
    if len(found) <= 1 or len(found) != max(numbers.shape) or found[0] != 0 or int(found[-1]) not in tokens:
        return False
    return bool((found.diff() >= 0).all())


def _keeps_beginnings(numbers: torch.Tensor) -> bool:
    """Whether this is a mask of padded rows: ones, then zeros. Types of tokens begin with zeros."""
    ones = (numbers == 1) if numbers.dtype is not torch.bool else numbers
    kept = ones | (numbers == 0)
    return bool(kept.all() and ones[:, 0].all() and (ones[:, 1:] <= ones[:, :-1]).all())


def _of_first(thing: object, depth: int = _DEEPEST) -> Load | None:
    """Count the first tensor of at least one dimension."""
    if isinstance(thing, torch.Tensor):
        return Load.of_shape(thing.shape) if thing.dim() else None
    if not depth or not isinstance(thing, Mapping | list | tuple):
        return None
    parts = thing.values() if isinstance(thing, Mapping) else thing
    return next((load for part in parts if (load := _of_first(part, depth - 1))), None)
