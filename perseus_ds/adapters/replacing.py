"""What of ours stands in a framework's own objects: put there, recognised, taken back. Light to import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from weakref import WeakSet

from perseus_ds.errors import PerseusError

Call = Callable[..., object]

_MARK = "__perseus_ds__"

_watched: WeakSet[type] = WeakSet()


def marked(function: Call) -> Call:
    """Mark a function as ours: how what we have put there is recognised."""
    setattr(function, _MARK, function)
    return function


def is_ours(function: object) -> bool:
    """Whether a function is one of ours; a wrapper of somebody else's may have copied its attributes."""
    return function is not None and getattr(function, _MARK, None) is function


def take_back(holder: object) -> None:
    """Remove whatever of ours an instance bears."""
    for name in [name for name, thing in vars(holder).items() if is_ours(thing)]:
        del vars(holder)[name]


def after_building(kind: type, act: Callable[[object], None]) -> None:
    """Have something done with every instance of a class once it is built; twice is once."""
    if kind in _watched:
        return
    _watched.add(kind)
    original = kind.__init__  # type: ignore[misc]

    @wraps(original)
    def built(host: object, *args: object, **kwargs: object) -> None:
        original(host, *args, **kwargs)
        try:
            act(host)
        except PerseusError:
            raise  # "on_error": "raise"
        except Exception as error:  # noqa: BLE001  # the host wins
            sys.stderr.write(f"perseus: off, training goes on at default clocks: {error}\n")

    kind.__init__ = built  # type: ignore[misc]


def before_first(host: object, name: str, begin: Callable[..., bool]) -> None:
    """Have ``begin`` called with the arguments of a method's calls, on one instance, until it returns True.

    From then on the method is what stands there: the host's own, or what has been put there meanwhile. Where
    ``begin`` fails it is the host's own again.
    """
    original = getattr(host, name)

    @wraps(original)
    def first(*args: object, **kwargs: object) -> object:
        try:
            present = getattr(host, name) if begin(*args, **kwargs) else original
        except PerseusError:
            raise  # "on_error": "raise"
        except Exception as error:  # noqa: BLE001  # the host wins
            sys.stderr.write(f"perseus: off, training goes on at default clocks: {error}\n")
            take_back(host)
            present = original
        return present(*args, **kwargs)

    vars(host)[name] = marked(first)
