"""Around a framework's own calls: a listener that is called, and whose failures never reach the host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TypeVar

from perseus_ds.adapters.replacing import marked
from perseus_ds.runtime.adapter import Batch, InstructionListener
from perseus_ds.schedule import Kind, Load

T = TypeVar("T")

Call = Callable[..., object]
Loaded = Callable[[tuple[object, ...], Mapping[str, object]], Load | None]


class Listening:
    """A listener as hooks call it: of its instructions while an iteration is ``wanted``.

    One that fails is given up: ``remove`` takes the hooks out.
    """

    def __init__(self, listener: InstructionListener, remove: Callable[[], None]) -> None:
        self._listener = listener
        self._remove = remove
        self.wanted = False

    def iteration(
        self, batch: Batch, run: Callable[[], T], *, prepared: Callable[[], None] | None = None
    ) -> T:
        """Run a training iteration; ``prepared`` is called before one that is wanted."""
        self.begins(batch)
        if self.wanted and prepared is not None:
            prepared()
        try:
            result = run()
        except BaseException:
            self._listener.iteration_broke()
            raise
        finally:
            self.wanted = False
        self._listener.iteration_ends()
        return result

    def begins(self, batch: Batch) -> None:
        """A training iteration starts that ends with a call of its own."""
        self.wanted = self._listener.iteration_begins(batch)

    def ends(self) -> None:
        """It was issued to its end."""
        self.wanted = False
        self._listener.iteration_ends()

    def broke(self) -> None:
        """The host's own code raised within it."""
        self.wanted = False
        self._listener.iteration_broke()

    def other_begins(self) -> None:
        """Something that does not train starts."""
        self._listener.other_schedule_begins()

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """An instruction is about to be issued."""
        if self.wanted:
            try:
                self._listener.before(kind, load)
            except Exception as error:  # noqa: BLE001  # a listener never reaches the host
                self._give_up(error)

    def after(self, kind: Kind) -> None:
        """It was issued."""
        if self.wanted:
            try:
                self._listener.after(kind)
            except Exception as error:  # noqa: BLE001  # see before()
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.wanted = False
        self._remove()
        sys.stderr.write(f"perseus: off, a listener failed: {error}\n")


def around(
    listening: Listening,
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
    def listened(*args: object, **kwargs: object) -> object:
        if not listening.wanted:
            return original(*args, **kwargs)
        if begins:
            listening.before(kind, None if load is None else load(args, kwargs))
        result = original(*args, **kwargs)
        if ends:
            listening.after(kind)
        return result

    return marked(listened)
