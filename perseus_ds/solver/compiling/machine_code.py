"""Machine code by numba, kept on disk under the digest of the sources that it was made from.

numba itself looks at one file only, that of the function: code that an edited callee has gone into would
be taken for new. So the name under which a function is kept ends in the digest of its folder and of the
whole solver.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from numba import config, njit
from numba.core.options import DefaultOptions
from numba.extending import overload

from perseus_ds.solver.compiling.compiled import Callee

P = ParamSpec("P")
R = TypeVar("R")

_DIGITS = 12
_LOCK = threading.Lock()
_SOLVER = Path(__file__).parents[1]
PATIENCE_S = 60.0
"""How long to wait for another process; then both compile, as if there were no lock."""
STEP_S = 0.05


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
    options = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    if not callee.counted and may_leave_out_counts():
        options["_nrt"] = False

    def implementation(*_: object) -> Callable[..., Any]:
        return callee.function

    overload(callee.name, jit_options=options, strict=False)(implementation)


def may_leave_out_counts() -> bool:
    """Whether this numba has its own option for that; without it kernels are slower, and right."""
    return hasattr(DefaultOptions, "_nrt")


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


@contextmanager
def one_at_a_time(file: Path | None, *, patience_s: float = PATIENCE_S) -> Iterator[bool]:
    """Hold a lock on a file, and state whether it was had: for want of rights, or of patience, go on without.

    Whoever waits finds on disk what the first has compiled.

    The lock ends with the process that holds it, however that ends. The file stays: who removes it would
    take it from under those who wait.
    """
    descriptor = None if file is None else _opened(file)
    try:
        yield descriptor is not None and _had(descriptor, patience_s)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(file: Path) -> int | None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _had(descriptor: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(STEP_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True
