"""The one door to the compiler: machine code kept on disk where this user may write, else in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` for compiled callers only: without a door for Python it takes half the time."""
    return njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)  # type: ignore[no-any-return]


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Write ``function`` into its compiled callers: for the few lines of an inner loop."""
    return njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, inline="always")(function)  # type: ignore[no-any-return]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile ``function`` on its first call; later processes load the result from disk.

    The compiler looks for ``__pycache__`` beside the source, then for the user's own cache folder. Where
    neither can be written (a read-only image, a service without a home) it compiles anew per process.

    Cost: about one second per kernel on the first call ever.
    """
    try:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


@inner
def number(value: int) -> int:
    """Return a constant as a plain number: what is called with constants is compiled once more for them."""
    return int(np.int64(value))
