"""The one door to the compiler: what it may take, and when a function that Python calls goes through."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import make_dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

SMALL = 36_000
"""Numbers that one call may be given and still be interpreted: a sweep over some 220 activities."""
PATIENCE = 6_000_000
"""Numbers after which a tiered function is compiled: interpreting them takes about as long as compiling."""


class Callee(NamedTuple):
    """What compiled callers mean by ``name``: they compile ``function`` into themselves.

    ``counted``: references to arrays are counted in it. That takes a third of the time of a beam.
    """

    name: Callable[..., Any]
    function: Callable[..., Any]
    counted: bool


_CALLEES: list[Callee] = []


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` for compiled callers only: without a door for Python it takes half the time.

    It makes no arrays and returns none: its caller holds them all, and references to them are not counted.
    """
    _CALLEES.append(Callee(function, function, counted=False))
    return function


def allocating(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` as ``inner`` does, but let it make arrays and return them."""
    _CALLEES.append(Callee(function, function, counted=True))
    return function


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` as ``inner`` does, where LLVM may inline it: the few lines of an inner loop.

    numba's own inlining of what is made known by name drops calls that are made for their effect alone.
    """
    return inner(function)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` on its first call; later processes load the result from disk.

    Cost: about one second per kernel on the first call ever.
    """
    return _Kernel(function, patience=-1)


def tiered(function: Callable[P, R]) -> Callable[P, R]:
    """Interpret ``function`` until so much was asked of it that compiling pays (tiered compilation).

    Machine code that lies on disk is used at once. Both ways compute the same, to the last bit. For
    functions whose work is about linear in the arrays they are given.
    """
    return _Kernel(function, patience=PATIENCE)


@inner
def number(value: int) -> int:
    """Return a constant as a plain number: what is called with constants is compiled once more for them."""
    return int(np.int64(value))


class _Kernel(Generic[P, R]):
    """A function with a door for Python. The compiler is loaded with the first call, not with the module."""

    def __init__(self, function: Callable[P, R], *, patience: int) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._patience = patience
        self._is_tiered = patience >= 0
        self._is_kept: bool | None = None  # whether machine code lay on disk at the first call
        self._machine: Callable[P, R] | None = None
        _CALLEES.append(Callee(self, function, counted=True))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        run = self._machine or self._chosen(args)
        return run(*args, **kwargs)

    def _chosen(self, given: tuple[object, ...]) -> Callable[P, R]:
        """Machine code where it lies on disk or has become due, else the function as it stands."""
        from perseus_ds.solver.compiling.machine_code import (  # noqa: PLC0415  # numba
            compiles,
            lies_on_disk,
            machine_code,
        )

        size = _numbers_in(given)
        self._patience -= size
        due = self._patience < 0 or size > SMALL
        if self._is_kept is None:
            self._is_kept = compiles() and lies_on_disk(self._function)
        if self._is_tiered and not (compiles() and (due or self._is_kept)):
            return interpreted(self._function)
        self._machine = machine_code(self._function, _CALLEES)
        return self._machine


def _numbers_in(given: object) -> int:
    """Count the numbers in all arrays, also those in tuples."""
    if isinstance(given, tuple):
        return sum(map(_numbers_in, given))
    return given.size * len(given.dtype.names or " ") if isinstance(given, np.ndarray) else 0


def interpreted(function: Callable[..., R]) -> Callable[..., R]:
    """Return what calls ``function`` with lists for vectors, of objects for records, and writes them back.

    An element of a list costs a third of an array's.
    """

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
