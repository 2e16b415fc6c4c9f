"""Run a kernel in Python while problems are small, so that a first plan compiles nothing, else by numba.

Machine code is kept in ``__pycache__`` beside the source, else in the user's cache folder; numba is imported
when it is first needed. numba itself watches only the file of the function: the name under which machine code
is kept therefore ends in the time of the last change to any file that it was compiled from.
"""

from __future__ import annotations

import functools
import gc
import math
import sys
from collections.abc import Callable
from dataclasses import make_dataclass
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., Any]
PATIENCE = 1.0
"""Share of what functions allow that is interpreted; 0 compiles everything at once."""
LOADING = 1_000_000
"""So many numbers are interpreted in the 0.4 s that it takes to import numba and to load machine code."""
_SOURCE: dict[Function, Function] = {}
_UNCOUNTED: set[Function] = set()


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function``, which makes no arrays, into its compiled callers, which alone call it.

    Its callers hold all arrays, so references need not be counted: that takes 40 % of a sweep's time.
    """
    _UNCOUNTED.add(function)
    return allocating(function)


def allocating(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` as ``inner`` does, but let it make arrays and return them."""
    _SOURCE[function] = function
    return function


def compiled(function: Callable[P, R], *, small: int = 0, patience: int = 0) -> Callable[P, R]:
    """Compile ``function`` on its first call; interpret it before that where it is given few numbers.

    These are at most ``small`` in one call, and ``patience`` in all calls of a process. Machine code that is
    on disk is loaded after ``LOADING`` numbers, and at once where numba has been imported.
    """
    machine: Callable[..., R] | None = None
    asked = 0

    @functools.wraps(function)
    def kernel(*args: P.args, **_: P.kwargs) -> R:
        nonlocal machine, asked
        if machine is None:
            size = _size(args)
            asked += size
            if small and size <= small and asked <= PATIENCE * min(patience, _worth_loading(function)):
                return interpret(function, args)
            machine = _machine_code(function, is_entry=True)
        return machine(*args)

    _SOURCE[kernel] = function
    return kernel


tiered = functools.partial(compiled, small=36_000, patience=6_000_000)
"""Interpret what works about linearly in its arrays until compiling pays; both give the same bits."""


def interpret(function: Callable[..., R], args: tuple[Any, ...]) -> R:
    """Call ``function`` with lists, whose elements cost a third of an array's; write back what it changed."""
    collects = gc.isenabled()
    gc.disable()  # nothing here is garbage, and looking for it takes a tenth of the time
    try:
        lists = tuple(map(_as_lists, args))
        result = function(*lists)
        _write_back(lists, args)
        return result
    finally:
        if collects:
            gc.enable()


@functools.cache
def _machine_code(function: Function, *, is_entry: bool) -> Any:  # noqa: ANN401  # numba has no types
    from numba import njit  # noqa: PLC0415  # slow to import
    from numba.core.options import DefaultOptions  # noqa: PLC0415

    callees = {name: _machine_code(one, is_entry=False) for name, one in _callees(function).items()}
    known = function.__globals__ | callees
    copy = FunctionType(function.__code__, known, function.__name__, function.__defaults__)
    copy.__qualname__ = _kept_as(function)
    if not is_entry:
        uncounted = function in _UNCOUNTED and hasattr(DefaultOptions, "_nrt")  # numba's own option
        counts = {"_nrt": False} if uncounted else {}
        return njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **counts)(copy)
    try:
        return njit(cache=True, nogil=True)(copy)
    except RuntimeError:  # no folder can be written to
        return njit(nogil=True)(copy)


def _callees(function: Function) -> dict[str, Function]:
    """The functions that are compiled into this one, by the names that it calls them."""
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    functions = {name: one for name, one in named.items() if isinstance(one, FunctionType)}
    return {name: _SOURCE[one] for name, one in functions.items() if one in _SOURCE}


def _sources(function: Function) -> set[str]:
    return {function.__code__.co_filename}.union(*map(_sources, _callees(function).values()))


def _kept_as(function: Function) -> str:
    changed_ns = max(Path(file).stat().st_mtime_ns for file in _sources(function))
    return f"{function.__qualname__}_{changed_ns:x}"


def _worth_loading(function: Function) -> float:
    """From how many numbers on loading machine code pays; infinite where none is on disk."""
    if not _is_on_disk(function):
        return math.inf
    return 0 if "numba" in sys.modules else LOADING


@functools.cache
def _is_on_disk(function: Function) -> bool:
    file = Path(function.__code__.co_filename)
    return any(file.parent.glob(f"__pycache__/{file.stem}.{_kept_as(function)}-*.nbi"))


def _size(given: object) -> int:
    if isinstance(given, tuple):
        return sum(map(_size, given))
    return given.size * len(given.dtype.names or " ") if isinstance(given, np.ndarray) else 0


def _as_lists(given: object) -> object:
    """Return lists for vectors, and lists of objects with slots for vectors of records."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        names = given.dtype.names
        return given.tolist() if names is None else [_record(names)(*row) for row in given.tolist()]
    if isinstance(given, tuple):
        return getattr(type(given), "_make", tuple)(map(_as_lists, given))
    return given


@functools.cache
def _record(names: tuple[str, ...]) -> type:
    return make_dataclass("Record", names, slots=True)


def _write_back(lists: object, given: object) -> None:
    if isinstance(given, np.ndarray) and isinstance(lists, list) and given.flags.writeable:
        names = given.dtype.names
        given[:] = lists if names is None else list(map(attrgetter(*names), lists))
    elif isinstance(given, tuple) and isinstance(lists, tuple):
        for one, other in zip(lists, given, strict=True):
            _write_back(one, other)
