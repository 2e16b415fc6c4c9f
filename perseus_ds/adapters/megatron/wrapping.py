"""The functions that run a pass, wrapped until further notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType

from perseus_ds.adapters.megatron.one_pass import OnePass
from perseus_ds.adapters.megatron.seam import PASSES, Function

Around = Callable[[OnePass, Callable[[], object]], object]

_WRAPPING = "__perseus_wrapping__"


class Wrapping:
    """Have ``around(pass, call)`` run every pass of a module.

    Several may stand around each other and are removed in any order. Jobs keep the function that they once
    asked for: a removed wrapper calls whatever the module has now.
    """

    def __init__(self, module: ModuleType, around: Around) -> None:
        self._module = module
        self._around = around
        self.removed = False
        for name in PASSES:
            setattr(module, name, self._wrapped(name, getattr(module, name)))

    def remove(self) -> None:
        """Put the module's own functions back, as far as nobody else stands around us; safe to call twice."""
        self.removed = True
        for name in PASSES:
            function = getattr(self._module, name)
            while getattr(function, _WRAPPING, None) and function.__perseus_wrapping__.removed:
                function = function.__wrapped__
            setattr(self._module, name, function)

    def _wrapped(self, name: str, original: Function) -> Function:
        @wraps(original)
        def passing(*args: object, **kwargs: object) -> object:
            if self.removed:
                return self._present(name, passing, original)(*args, **kwargs)
            present = OnePass(self._module, name, kwargs)
            return self._around(present, lambda: original(*args, **kwargs))

        setattr(passing, _WRAPPING, self)
        return passing

    def _present(self, name: str, mine: Function, original: Function) -> Function:
        """What to call after removal: the original where somebody stands around us, else what is there."""
        there: Function = getattr(self._module, name)
        around: Function | None = there
        while around is not None and around is not mine:
            around = getattr(around, "__wrapped__", None)
        return there if around is None else original


def wrapping_of(module: ModuleType) -> Wrapping | None:
    """What stands outermost around a module's passes."""
    return getattr(getattr(module, PASSES[0]), _WRAPPING, None)
