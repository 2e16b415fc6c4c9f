"""Machine code by numba, kept on disk under the digest of the sources that it was made from.

numba itself looks at one file only, that of the function: code that an edited callee has gone into would
be taken for new. So the name under which a function is kept ends in the digest of its folder and of the
whole solver.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from numba import config, njit
from numba.extending import overload

from perseus_ds.solver.compiling.compiled import Callee
from perseus_ds.solver.compiling.one_at_a_time import one_at_a_time

P = ParamSpec("P")
R = TypeVar("R")

_DIGITS = 12
_LOCK = threading.Lock()
_SOLVER = Path(__file__).parents[1]


def machine_code(function: Callable[P, R], callees: list[Callee]) -> Callable[P, R]:
    """Return what compiles ``function`` when it is called, or loads it; what it calls is made known first.

    The compiler looks for ``__pycache__`` beside the source, then for the user's own cache folder. Where
    neither can be written (a read-only image, a service without a home) it compiles anew per process. Of
    several processes that start together one compiles, and the others load what it has written.
    """
    with _LOCK:
        while callees:
            _make_known(callees.pop())
    dispatcher = _dispatcher(function)
    if not compiles():
        return cast("Callable[P, R]", dispatcher)

    def run(*given: P.args, **named: P.kwargs) -> R:
        if not dispatcher.overloads and not named:
            with one_at_a_time(None if lies_on_disk(function) else _lock_file(function)):
                dispatcher.compile(tuple(map(dispatcher.typeof_pyval, given)))
        return cast("R", dispatcher(*given, **named))

    return run


def compiles() -> bool:
    """Whether there is a compiler at all: ``NUMBA_DISABLE_JIT`` leaves functions as they are."""
    return not config.DISABLE_JIT


def lies_on_disk(function: Callable[..., object]) -> bool:
    """Whether this machine has code for the function already."""
    folder = _folder(function)
    return folder is not None and any(folder.glob(f"*.{_kept_as(function)}-*.nbi"))


def _folder(function: Callable[..., object]) -> Path | None:
    """Where machine code is kept; None where nothing can be written."""
    folder = _dispatcher(function).stats.cache_path if compiles() else None
    return None if folder is None else Path(folder)


def _lock_file(function: Callable[..., object]) -> Path | None:
    """One file per function, whatever its sources: old ones do not pile up."""
    folder = _folder(function)
    return None if folder is None else folder / f"{function.__module__}.{function.__qualname__}.lock"


@functools.cache
def _dispatcher(function: Callable[..., Any]) -> Any:  # noqa: ANN401  # numba has no types
    named = _renamed(cast("FunctionType", function), _kept_as(function))
    try:
        return njit(cache=True, nogil=True)(named)
    except RuntimeError:
        return njit(nogil=True)(named)


def _make_known(callee: Callee) -> None:
    """Let compiled callers compile a function in: no doors, neither for Python nor for C."""
    options = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": callee.counted}

    def implementation(*_: object) -> Callable[..., Any]:
        return callee.function

    overload(callee.name, jit_options=options, strict=False)(implementation)


def _renamed(function: FunctionType, name: str) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__qualname__ = name
    return copy


def _kept_as(function: Callable[..., object]) -> str:
    folder = Path(cast("FunctionType", function).__code__.co_filename).parent
    return f"{function.__qualname__}_{_digest(folder)}"


@functools.cache
def _digest(folder: Path) -> str:
    """Digest of all sources beside a function, and of the whole solver."""
    files = sorted({*folder.glob("*.py"), *_SOLVER.rglob("*.py")})
    said = hashlib.sha256()
    for file in files:
        said.update(file.read_bytes())
    return said.hexdigest()[:_DIGITS]
