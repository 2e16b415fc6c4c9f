"""The user's own function for the loads of coming iterations: set in code, or named in the block."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from perseus_ds.errors import ConfigError

LoadFunction = Callable[[int, int], object]
"""(iteration, microbatches) -> one entry a microbatch: its tokens, or a list of its sequences' lengths."""

_set: list[LoadFunction] = []


def set_function(function: LoadFunction | None) -> None:
    """Keep a function for the jobs of this process; None forgets it.

    Raises:
        ConfigError: it cannot be called.
    """
    if function is not None and not callable(function):
        raise ConfigError(f"set_load was given {function!r:.80}", hint="expected a function")
    _set[:] = [] if function is None else [function]


def load_function(named: str | None) -> LoadFunction | None:
    """Return the function that was set in code, else the one of a dotted name; None without either.

    Raises:
        ConfigError: there is no such function.
    """
    if _set or named is None:
        return _set[0] if _set else None
    module, _, name = named.replace(":", ".").rpartition(".")
    key = f"perseus.straggler.set_load is {named!r:.200}"
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        why = f"{type(error).__name__}: {error!s:.200}"
        raise ConfigError(f"{key}: {why}", hint='expected "module.function"') from error
    if not callable(found):
        raise ConfigError(f"{key}, which is no function", hint='expected "module.function"')
    function: LoadFunction = found
    return function
