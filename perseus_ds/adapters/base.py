"""Parts that all adapters share: guarded hooks on a framework's objects, checks of the names relied on.

Imports no framework.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import torch
import torch.distributed as dist

from perseus_ds.config import ENABLED_BY_FILE
from perseus_ds.errors import EngineError, PerseusError, as_perseus_error
from perseus_ds.runtime.adapter import Batch, InstructionListener

if TYPE_CHECKING:
    from perseus_ds.schedule import Kind, Load

Call = Callable[..., object]
CountLoad = Callable[[tuple[object, ...], Mapping[str, object]], "Load | None"]

T = TypeVar("T")
log = logging.getLogger("perseus_ds")

_MARK = "__perseus_ds__"
_ABSENT = object()
_watched: WeakSet[type] = WeakSet()


# Attach an engine later: when it has been built, or at its first training iteration.


def is_requested(config: Mapping[str, object] | None) -> bool:
    """Return whether a block is given in code, or in the file that ``PERSEUS_CONFIG`` names."""
    return config is not None or bool(os.environ.get(ENABLED_BY_FILE))


def block_in_code(config: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return the enabled block that was given in code; None where ``PERSEUS_CONFIG`` names it."""
    return None if config is None else {"enabled": True, **config}


def on_construction(kind: type, act: Callable[[object], None]) -> None:
    """Call ``act`` with every instance of a class once it is built; asked twice, it is called once."""
    if kind in _watched:
        return
    _watched.add(kind)
    original = kind.__init__  # type: ignore[misc]

    @wraps(original)
    def init(host: object, *args: object, **kwargs: object) -> None:
        original(host, *args, **kwargs)
        _attempt(lambda: act(host))

    kind.__init__ = init  # type: ignore[misc]


def on_first_call(host: object, name: str, *, ready: Callable[..., bool], serve: Callable[..., None]) -> None:
    """Call ``serve`` at a method's first call that is ``ready``, on one instance; both get its arguments.

    From then on the method is the host's own, or whatever ``serve`` replaced it by. Where one of both fails
    it is the host's own again.
    """
    original = getattr(host, name)
    before = vars(host).get(name, _ABSENT)

    @wraps(original)
    def first(*args: object, **kwargs: object) -> object:
        def begin() -> bool:
            if not ready(*args, **kwargs):
                return False
            _put_back(vars(host), name, first, before)
            serve(*args, **kwargs)
            return True

        begun = _attempt(begin)
        if begun is None:
            unwrap(host)
        present = getattr(host, name) if begun else original
        return present(*args, **kwargs)

    vars(host)[name] = mark_as_ours(first)


def detach_host(host: object) -> None:
    """Restore a host's own methods and the GPU's own clocks, on this rank alone."""
    from perseus_ds.runtime.attach import deactivate  # noqa: PLC0415  # heavy, and now needed

    deactivate(host)
    unwrap(host)


def mark_as_ours(function: Call) -> Call:
    """Mark a function, so that `is_ours` recognises it."""
    setattr(function, _MARK, function)
    return function


def is_ours(function: object) -> bool:
    """Return whether a function is ours; wrappers of others may have copied our attributes."""
    return function is not None and getattr(function, _MARK, None) is function


def unwrap(holder: object) -> None:
    """Remove all functions of ours from an instance."""
    for name in [name for name, thing in vars(holder).items() if is_ours(thing)]:
        del vars(holder)[name]


def _put_back(own: dict[str, object], name: str, ours: object, before: object) -> None:
    """Restore an attribute; one that somebody else has replaced since is theirs."""
    if own.get(name) is not ours:
        return
    if before is _ABSENT:
        del own[name]
    else:
        own[name] = before


def _attempt(act: Callable[[], T]) -> T | None:
    """Run code of ours on the host's thread; log what fails, and raise it where the user wants that."""
    try:
        return act()
    except PerseusError:
        raise  # "on_error": "raise"
    except Exception as error:  # noqa: BLE001  # the host wins
        log.warning("off, training goes on at default clocks: %s", error)
        return None


class HookedAdapter:
    """Adapter whose hooks stand in place of functions of its host's instances; a subclass puts them there.

    Every hook keeps and calls the function that it replaces. A hook that somebody has wrapped since stays
    below that wrapper when the others are removed, and only passes calls on. ``present`` is the framework's
    object for the training iteration that began last.

    It is the one guard as well: all of ours that runs on the host's thread is called through it, counting
    included. Instructions are announced while an iteration is ``wanted``. What fails is logged once: the
    listener restores the clocks, the hooks are removed, and from then on nothing is called. An error reaches
    the host only where the user wants that, and never in place of the host's own.
    """

    def __init__(self, present: Any = None) -> None:  # noqa: ANN401  # of whatever framework
        self.present = present
        self.wanted = self._removed = False
        self._listener: InstructionListener
        self._replaced: list[tuple[dict[str, object], str, object, object]] = []

    @property
    def local_rank(self) -> int:
        """Rank on its node as the launcher states it, else as if there were one node."""
        return int(os.environ.get("LOCAL_RANK", dist.get_rank() if dist.is_initialized() else 0))

    @property
    def scalars_every(self) -> int | None:
        return None

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Show scalars where the framework shows its own."""

    def install(self, listener: InstructionListener) -> None:
        """Install hooks that call a listener.

        Raises:
            EngineError: hooks of ours are installed already.
        """
        self._listener, self._removed = listener, False
        self._hook()

    def remove(self) -> None:
        """Restore what was replaced; safe to call twice, also from within an iteration."""
        self.wanted, self._removed = False, True
        self._restore()

    def _hook(self) -> None:
        """Put the hooks in place.

        Raises:
            EngineError: hooks of ours are installed already.
        """
        raise NotImplementedError

    def _replace(self, holder: object, name: str, ours: object) -> None:
        own = vars(holder)
        self._replaced.append((own, name, ours, own.get(name, _ABSENT)))
        own[name] = ours

    def _restore(self) -> None:
        while self._replaced:
            _put_back(*self._replaced.pop())

    def _announce(
        self,
        kind: Kind,
        original: Call,
        *,
        begins: bool = True,
        ends: bool = True,
        load: CountLoad | None = None,
    ) -> Call:
        """Announce an instruction around the call that runs it.

        Of several calls that run one, the first ``begins`` and the last ``ends`` it. ``load`` reads off the
        arguments how much it works on.
        """

        @wraps(original)
        def announce(*args: object, **kwargs: object) -> object:
            if begins:
                self._before(kind, None if load is None else partial(load, args, kwargs))
            result = original(*args, **kwargs)
            if ends:
                self._after(kind)
            return result

        return mark_as_ours(announce)

    def _run(
        self,
        call: Callable[[], T],
        *,
        trains: Callable[[], bool],
        batch: Callable[[], Batch],
        prepare: Callable[[], None] | None = None,
    ) -> T:
        """Make the host's own call: as an iteration where it ``trains``, else as something else.

        ``prepare`` is called before an iteration that is wanted.
        """
        if self._removed:
            return call()
        if not self._do(trains, default=False):
            self._do(self._listener.other_schedule_begins, None)
            return call()
        self._begin(batch)
        if self.wanted and prepare is not None:
            self._do(prepare, None)
        try:
            result = call()
        except BaseException:
            self._break()
            raise
        self.wanted = False
        self._do(self._listener.iteration_ends, None)
        return result

    def _do(self, act: Callable[[], T], default: T) -> T:
        """Do something of ours; where it fails, or the hooks are removed, return ``default``."""
        if not self._removed:
            try:
                return act()
            except Exception as error:  # noqa: BLE001  # nothing of ours may reach the host
                self._give_up(error)
        return default

    def _begin(self, batch: Callable[[], Batch]) -> None:
        """A training iteration starts."""
        self.wanted = False
        if not self._removed:
            try:
                self.wanted = self._listener.iteration_begins(batch())
            except Exception as error:  # noqa: BLE001  # see _do()
                self._give_up(error)

    def _break(self) -> None:
        """Note that the host's own code raised in an iteration: its exception is the one that passes."""
        self.wanted = False
        with suppress(Exception):
            self._do(self._listener.iteration_broke, None)

    def _before(self, kind: Kind, load: Callable[[], Load | None] | None = None) -> None:
        """An instruction is about to be issued; ``load`` counts what it works on."""
        if self.wanted:
            try:
                self._listener.before(kind, None if load is None else load())
            except Exception as error:  # noqa: BLE001  # see _do()
                self._give_up(error)

    def _after(self, kind: Kind) -> None:
        """It was issued."""
        if self.wanted:
            try:
                self._listener.after(kind)
            except Exception as error:  # noqa: BLE001  # see _do()
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Leave for good: clocks first, then the line and the hooks, each whatever becomes of the others."""
        self.wanted, self._removed, raises = False, True, False
        try:
            raises = self._listener.fail(error)
        except Exception:  # noqa: BLE001  # the listener is what fails
            log.warning("off, training goes on at default clocks: %s", as_perseus_error(error))
        with suppress(Exception):
            self.remove()
        if raises:
            raise error


# Names of a framework that no one promised us: checked before an engine is served.


@dataclass(frozen=True, slots=True)
class Release:
    """The release of a framework that is imported ("DeepSpeed", "0.19.8"), and those tested."""

    framework: str
    version: str
    tested: Sequence[str]

    @property
    def untested(self) -> str:
        """Name a release that was not tried; empty where it was, whatever its build ("+cu128")."""
        if self.version.split("+", maxsplit=1)[0] in self.tested:
            return ""
        return f"{self.framework} {self.version} was not tested (tested: {', '.join(self.tested)})"

    def check(self, holder: object, required: Mapping[str, str], *, where: str) -> None:
        """Return if a holder, which messages call ``where``, has all of some names, each with its use.

        A member's member is named with a dot between.

        Raises:
            EngineError: naming what is missing, the release found and those tested.
        """
        for name, use in required.items():
            try:
                attrgetter(name)(holder)
            except AttributeError:
                raise self.refusal(f"{where}.{name}, used for {use}, is not there") from None

    def refusal(self, what: str) -> EngineError:
        """Return the error for a framework that is not as in the releases tested."""
        tested = f"tested: {', '.join(self.tested)}"
        return EngineError(f"{self.framework} {self.version}: {what}", hint=tested)


def dtypes_of(parameters: Iterable[torch.nn.Parameter]) -> str:
    """Name the types of some parameters, for a job's fingerprint."""
    return " ".join(sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters}))
