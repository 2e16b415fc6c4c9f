"""The one door to the compiler: machine code kept on disk where this user may write, else in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


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
