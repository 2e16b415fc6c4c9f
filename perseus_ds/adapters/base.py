"""Parts that all adapters share: wrappers on a framework's objects, and checks of the names relied on.

Imports neither torch nor a framework.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING
from weakref import WeakSet

from perseus_ds.errors import EngineError, PerseusError

if TYPE_CHECKING:
    import torch

    from perseus_ds.runtime.adapter import GuardedListener
    from perseus_ds.schedule import Kind, Load

Call = Callable[..., object]

log = logging.getLogger("perseus_ds")

_MARK = "__perseus_ds__"

_watched: WeakSet[type] = WeakSet()


def mark_as_ours(function: Call) -> Call:
    """Mark a function as ours: how what we have put there is recognised."""
    setattr(function, _MARK, function)
    return function


def is_ours(function: object) -> bool:
    """Tell our functions from others', whose wrappers may have copied our attributes."""
    return function is not None and getattr(function, _MARK, None) is function


def unwrap(holder: object) -> None:
    """Remove whatever of ours an instance bears."""
    for name in [name for name, thing in vars(holder).items() if is_ours(thing)]:
        del vars(holder)[name]


def on_construction(kind: type, act: Callable[[object], None]) -> None:
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
            log.warning("off, training goes on at default clocks: %s", error)

    kind.__init__ = built  # type: ignore[misc]


def on_first_call(host: object, name: str, begin: Callable[..., bool]) -> None:
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
            log.warning("off, training goes on at default clocks: %s", error)
            unwrap(host)
            present = original
        return present(*args, **kwargs)

    vars(host)[name] = mark_as_ours(first)


# Around a framework's own calls: instructions that are announced to a guarded listener.

Loaded = Callable[[tuple[object, ...], Mapping[str, object]], "Load | None"]


def around(
    guard: GuardedListener,
    kind: Kind,
    original: Call,
    *,
    begins: bool = True,
    ends: bool = True,
    load: Loaded | None = None,
) -> Call:
    """Announce an instruction around what runs it; where several calls are one, it ``begins`` or ``ends``.

    ``load`` reads off a call's arguments how much it works on.
    """

    @wraps(original)
    def announced(*args: object, **kwargs: object) -> object:
        if not guard.wanted:
            return original(*args, **kwargs)
        if begins:
            guard.before(kind, None if load is None else partial(load, args, kwargs))
        result = original(*args, **kwargs)
        if ends:
            guard.after(kind)
        return result

    return mark_as_ours(announced)


# Names of a framework that no one promised us: each with its use, checked before an engine is served.


@dataclass(frozen=True, slots=True)
class RequiredName:
    """A name that we rely on, a member's of a member with a dot between, and its use."""

    name: str
    use: str


@dataclass(frozen=True, slots=True)
class Release:
    """The release of a framework that is imported ("DeepSpeed 0.19.8"), and those tested."""

    name: str
    tested: Sequence[str]

    def check(self, holder: object, required: Iterable[RequiredName], *, where: str) -> None:
        """Return if a holder, which messages call ``where``, has all of some names.

        Raises:
            EngineError: naming what is missing, the release found and those tested.
        """
        for one in required:
            if not _has(holder, one.name.split(".")):
                raise self.unsupported(f"{where}.{one.name}, used for {one.use}, is not there")

    def unsupported(self, what: str) -> EngineError:
        """Return what is not as in the releases tested."""
        return EngineError(f"{self.name}: {what}", hint=f"tested: {', '.join(self.tested)}")


def _has(holder: object, path: Iterable[str]) -> bool:
    for name in path:
        if not hasattr(holder, name):
            return False
        holder = getattr(holder, name)
    return True


def detach_host(host: object) -> None:
    """Give a host its own methods and the GPU its own clocks back; collective in effect, not in kind."""
    from perseus_ds.runtime.attach import deactivate  # noqa: PLC0415  # heavy, and now needed

    deactivate(host)
    unwrap(host)


def dtypes_of(parameters: Iterable[torch.nn.Parameter]) -> str:
    """Name the types of some parameters, for a job's fingerprint."""
    return " ".join(sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters}))
