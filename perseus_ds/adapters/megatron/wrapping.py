"""The functions that run a pass, wrapped until further notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType

from perseus_ds.adapters.megatron.one_pass import OnePass
from perseus_ds.adapters.megatron.seam import PASSES, Function

Around = Callable[[OnePass, Callable[[], object]], object]

_WRAPPING = "__perseus_wrapping__"


class Wrapping:
    """Have ``around(pass, call)`` run every pass of a module.

    ``model`` is whose passes it is for. Several may stand around each other, with other people's wrappers
    among them, and are removed in any order. Jobs keep the function that they once asked for: a removed
    wrapper calls the one that serves now.
    """

    def __init__(self, module: ModuleType, around: Around, *, model: object = None) -> None:
        self.model = model
        self.removed = False
        self._module = module
        self._around = around
        self._inside = False
        for name in PASSES:
            setattr(module, name, self._wrapped(name, getattr(module, name)))

    def remove(self) -> None:
        """Put the module's own functions back, as far as nobody else stands around us; safe to call twice."""
        self.removed = True
        for name in PASSES:
            function = getattr(self._module, name)
            while (ours := _ours(function)) is not None and ours.removed:
                function = function.__wrapped__
            setattr(self._module, name, function)

    def _wrapped(self, name: str, original: Function) -> Function:
        @wraps(original)
        def passing(*args: object, **kwargs: object) -> object:
            if self._inside:
                return original(*args, **kwargs)
            self._inside = True
            try:
                if self.removed:
                    there = getattr(self._module, name)
                    serving = _ours(there)
                    waits = serving is not None and not serving._inside  # noqa: SLF001  # one of our own
                    return (there if waits else original)(*args, **kwargs)
                present = OnePass(self._module, name, kwargs)
                return self._around(present, lambda: original(*args, **kwargs))
            finally:
                self._inside = False

        vars(passing)[_WRAPPING] = self, passing
        return passing


def wrappings_of(module: ModuleType) -> Iterator[Wrapping]:
    """Yield what stands around a module's passes and is not removed, outermost first."""
    function: object = getattr(module, PASSES[0])
    while function is not None:
        if (ours := _ours(function)) is not None and not ours.removed:
            yield ours
        function = getattr(function, "__wrapped__", None)


def _ours(function: object) -> Wrapping | None:
    """Whose wrapper this is; one of somebody else's may have copied its attributes."""
    wrapping, passing = getattr(function, _WRAPPING, (None, None))
    return wrapping if passing is function else None
