"""Kernels as plain Python: on lists, whose elements cost a third of an array's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import make_dataclass
from operator import attrgetter
from typing import TypeVar

import numpy as np

R = TypeVar("R")


def interpreted(function: Callable[..., R]) -> Callable[..., R]:
    """Return what calls ``function`` with lists for vectors, of objects for records, and writes them back."""

    def on_lists(*given: object) -> R:
        lists = tuple(map(_listed, given))
        result = function(*lists)
        _write_back(lists, given)
        return result

    return on_lists


def _listed(given: object) -> object:
    if isinstance(given, np.ndarray) and given.ndim == 1:
        names = given.dtype.names
        if names is None:
            return given.tolist()
        record = _record(names)
        return [record(*row) for row in given.tolist()]
    if isinstance(given, tuple):
        return (
            type(given)._make(map(_listed, given)) if hasattr(given, "_make") else tuple(map(_listed, given))
        )
    return given


def _write_back(lists: object, given: object) -> None:
    if isinstance(given, np.ndarray) and isinstance(lists, list) and given.flags.writeable:
        names = given.dtype.names
        given[:] = lists if names is None else list(map(attrgetter(*names), lists))
    elif isinstance(given, tuple) and isinstance(lists, tuple):
        for one, other in zip(lists, given, strict=True):
            _write_back(one, other)


@functools.cache
def _record(names: tuple[str, ...]) -> type:
    """Make a class of these fields: with slots, which are read twice as fast as a dictionary."""
    return make_dataclass("Record", names, slots=True)
