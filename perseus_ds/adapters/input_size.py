"""Size of a microbatch, read off what a framework was given: shapes, and tensors on the host."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import NDArray

from perseus_ds.errors import ConfigError
from perseus_ds.schedule import Load

_BOUNDARIES = ("cu_seqlens_cpu", "cu_seqlens_q_cpu", "cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")
"""Names of packed sequences' boundaries: Megatron's ``packed_seq_params``, flash-attn, Transformers."""
_LENGTHS = ("seq_lens", "seqlens", "lengths", "sequence_lengths")
_PACKED = ("packed_seq_params",)
_TOKENS = ("input_ids", "tokens", "text")
_MASK = "attention_mask"
_GRIDS = ("image_grid_thw", "video_grid_thw")
_IMAGES = ("pixel_values", "images")
_PATCH = 3 * 16 * 16  # elements of an image for one token

_MOST_OF_ONE = 64  # elements of one container, and
_MOST_VISITED = 512  # of all in a batch: half a millisecond
_MOST_LISTED = 4096  # numbers of a list: a third of a millisecond
_MOST_READ = 1 << 18  # numbers of a tensor: a third of a millisecond
_DEEPEST = 4

_Numbers = NDArray[np.float64]
_Element = tuple[int, str, object]
"""Something in a batch: how deep, under which name ("" without one)."""


def count_load(batch: object) -> Load | None:
    """Count a microbatch as a framework hands it over: a mapping, a tuple, a tensor, or all of these nested.

    Sequences are those that packing names, else rows; images count by their grid of patches or their pixels.
    A mask that bears its name and leaves out padding shortens the attention and nothing else. Without any of
    these it is the first tensor's shape. Boundaries of packed sequences are also known by their content,
    since pipelines hand over tensors without names. None where there is no tensor.

    Never raises. Cost: about 1 ms at most, since so many elements are looked at and no more. A tensor on a
    device is never read, since that would wait for it.
    """
    try:
        if isinstance(batch, torch.Tensor):
            return Load.of_shape(batch.shape) if batch.dim() else None
        found = list(islice(_elements(batch, 0), _MOST_VISITED))
        with np.errstate(all="ignore"):
            return _of_names(_by_name(found)) or _of_boundaries(found) or _of_first(found)
    except Exception:  # noqa: BLE001  # a batch may hold anything, and is the host's
        return None


def count_chunks(arguments: Iterable[object], microbatches: int) -> tuple[Load, ...] | None:
    """Count a whole batch that is split along its first dimension, as torch's schedules do; never raises."""
    try:
        pieces = [_split(one, microbatches, 0) for one in islice(arguments, _MOST_OF_ONE)]
        loads = [count_load(list(piece)) for piece in zip(*pieces, strict=True)]
    except Exception:  # noqa: BLE001  # see count_load()
        return None
    found = tuple(load for load in loads if load is not None)
    return found if len(found) == microbatches else None


def _split(thing: object, parts: int, depth: int) -> Sequence[object]:
    if isinstance(thing, torch.Tensor) and thing.dim():
        plain = thing if type(thing) is torch.Tensor else torch.empty(thing.shape, device="meta")
        return torch.tensor_split(plain, parts)
    if depth < _DEEPEST and isinstance(thing, Mapping):
        entries = islice(thing.items(), _MOST_OF_ONE)
        pieces = {key: _split(value, parts, depth + 1) for key, value in entries}
        return [{key: value[n] for key, value in pieces.items()} for n in range(parts)]
    return [thing] * parts


def _elements(thing: object, depth: int, name: str = "") -> Iterator[_Element]:
    """Yield a thing and all in it, in order and lazily."""
    yield depth, name, thing
    if depth >= _DEEPEST:
        return
    if name in _PACKED and hasattr(thing, "__dict__"):
        thing = vars(thing)
    if isinstance(thing, Mapping):
        for key, value in islice(thing.items(), _MOST_OF_ONE):
            yield from _elements(value, depth + 1, key if isinstance(key, str) else "")
    elif isinstance(thing, list | tuple):
        for value in islice(thing, _MOST_OF_ONE):
            yield from _elements(value, depth + 1)


def _by_name(elements: Iterable[_Element]) -> Mapping[str, object]:
    """Return the named elements; of several with one name the outermost."""
    named: dict[str, object] = {}
    for _, name, thing in sorted(elements, key=itemgetter(0)):
        named.setdefault(name, thing)
    del named[""]
    return named


def _of_names(named: Mapping[str, object]) -> Load | None:
    images = _images(named)
    boundaries = _first(named, _BOUNDARIES)
    if boundaries is not None:
        return _of_lengths(np.diff(boundaries.ravel()).clip(min=0.0)) + (images or Load(0.0))
    lengths = _first(named, _LENGTHS)
    if lengths is not None:
        return _of_lengths(lengths) + (images or Load(0.0))
    tokens = next((named[name] for name in _TOKENS if isinstance(named.get(name), torch.Tensor)), None)
    if not isinstance(tokens, torch.Tensor) or not tokens.dim():
        return images
    load = Load.of_shape(tokens.shape)
    mask = _numbers(named.get(_MASK))
    if mask is not None and mask.ndim > 1 and mask.shape == tuple(tokens.shape):
        load = Load(load.tokens, _of_lengths(np.count_nonzero(mask, axis=-1).astype(float)).squares)
    return load if images is None else load + images


def _images(named: Mapping[str, object]) -> Load | None:
    """Count every image: patches of its grid, else its pixels."""
    grid = _first(named, _GRIDS)
    if grid is not None and grid.ndim:
        return _of_lengths(grid.prod(axis=-1))
    for name in _IMAGES:
        images = named.get(name)
        if isinstance(images, torch.Tensor) and images.dim() > 1 and len(images):
            each = images.numel() / len(images) / _PATCH
            return Load(len(images) * each, len(images) * each * each)
        if isinstance(images, list | tuple):
            some = list(islice(images, _MOST_OF_ONE + 1))
            sizes = [one.numel() / _PATCH for one in some if isinstance(one, torch.Tensor)]
            return Load.of_lengths(sizes) if sizes and len(some) <= _MOST_OF_ONE else None
    return None


def _first(named: Mapping[str, object], names: Sequence[str]) -> _Numbers | None:
    return next((found for name in names if (found := _numbers(named.get(name))) is not None), None)


def _numbers(thing: object) -> _Numbers | None:
    """Return numbers that lie on the host; None for all else, and for more than there is time to read.

    A subclass of tensors may communicate, or stand for something else, where it is read.
    """
    if isinstance(thing, list | tuple):
        some = list(islice(thing, _MOST_LISTED + 1))
        known = 0 < len(some) <= _MOST_LISTED and all(isinstance(one, int | float) for one in some)
        return np.array(some, dtype=float) if known else None
    if type(thing) is torch.Tensor:
        if thing.device.type != "cpu" or not 0 < thing.numel() <= _MOST_READ or thing.is_complex():
            return None
        if thing.dtype is torch.bfloat16:  # which numpy lacks
            thing = thing.float()
        thing = thing.detach().numpy()
    if type(thing) is np.ndarray and 0 < thing.size <= _MOST_READ and thing.dtype.kind in "biuf":
        return thing.astype(float)
    return None


def _of_boundaries(elements: Iterable[_Element]) -> Load | None:
    """Count tensors without names by the one that bounds sequences of the first: 0, ..., number of tokens."""
    unnamed = [one for _, name, one in elements if not name and isinstance(one, torch.Tensor)]
    if not unnamed or not unnamed[0].dim():
        return None
    first, *others = unnamed
    tokens = {first.shape[0], math.prod(first.shape[:2])} - {1}
    for one in others[:_MOST_OF_ONE]:
        if one.is_floating_point() or one.dtype is torch.bool or one.numel() != max(one.shape, default=0):
            continue
        found = _numbers(one)
        if found is not None and found.size > 1 and found.flat[0] == 0.0 and found.flat[-1] in tokens:
            lengths = np.diff(found.ravel())
            if (lengths >= 0.0).all():
                return _of_lengths(lengths)
    return None


def _of_first(elements: Iterable[_Element]) -> Load | None:
    shapes = (one.shape for _, _, one in elements if isinstance(one, torch.Tensor) and one.dim())
    return next(map(Load.of_shape, shapes), None)


def _of_lengths(lengths: _Numbers) -> Load:
    """Count sequences of these lengths (tokens).

    Raises:
        ConfigError: one is negative.
    """
    if (lengths < 0.0).any():
        raise ConfigError("a length is negative")
    return Load(float(lengths.sum()), float((lengths * lengths).sum()))


class ReadAhead:
    """A data iterator that can read microbatches ahead of the framework that consumes it.

    The framework gets the same items in the same order. An iteration consumes the items that were read for
    it. So between two iterations the iterator is where it would be without us: a checkpoint saves the same
    state. All other attributes are the iterator's own.
    """

    def __init__(self, data: Iterator[object]) -> None:
        self.data = data
        self._read: deque[object] = deque()
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        if self._read:
            return self._read.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return next(self.data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.data, name)

    @property
    def is_empty(self) -> bool:
        return not self._read and self._error is None

    def reads(self, data: object) -> bool:
        """Return whether this is the iterator that is read here, or this object itself."""
        return data is self or data is self.data

    def loads(self, microbatches: int) -> tuple[Load, ...] | None:
        """Read so many microbatches and count them; None where the data end before, or cannot be counted.

        An exception of the iterator is raised when its microbatch is consumed.
        """
        while len(self._read) < microbatches and self._error is None:
            try:
                self._read.append(next(self.data))
            except Exception as error:  # noqa: BLE001  # the host's own: it is raised where it would have been
                self._error = error
        if len(self._read) < microbatches:
            return None
        found = tuple(load for load in map(count_load, list(self._read)[:microbatches]) if load is not None)
        return found if len(found) == microbatches else None
