"""Stand between a pass and its instructions: module globals, kept, called and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import cast

from torch import nn

from perseus_ds.adapters.listening import around
from perseus_ds.adapters.megatron.one_pass import OnePass
from perseus_ds.adapters.megatron.seam import STEPS, Function
from perseus_ds.adapters.megatron.wrapping import Wrapping, wrappings_of
from perseus_ds.adapters.reading_ahead import ReadAhead
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, GuardedListener, InstructionListener
from perseus_ds.runtime.startup.activation import say
from perseus_ds.schedule import Kind, Load

_DATA = "data_iterator"
_SYNC = "finish_grad_sync"
"""What Megatron's data-parallel modules are known by: there replicas wait for each other."""


class Hooks:
    """Listen to the passes of one model, in a module that others may train in as well.

    The three functions that run a pass stay wrapped. The two that run a microbatch, and each chunk's
    ``finish_grad_sync``, are wrapped within a wanted pass of this model alone, which looks them up at every
    call: evaluations and other models run Megatron's own.
    """

    def __init__(self, module: ModuleType, chunks: list[nn.Module], listener: InstructionListener) -> None:
        self._module = module
        self._first = chunks[0]
        self._reducing = reducing(chunks)
        self._guard = GuardedListener(listener, self.remove)
        self._wrapping: Wrapping | None = None
        self._load: Load | None = None
        self._told = False
        self.reads_ahead = False
        self._ahead: ReadAhead | None = None
        self.present: OnePass | None = None
        self._undo: list[Callable[[], object]] = []

    def install(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: somebody listens to this model already.
        """
        if any(other.model is self._first for other in wrappings_of(self._module)):
            raise EngineError("perseus_ds is installed on this model already")
        self._wrapping = Wrapping(self._module, self._around_pass, model=self._first)

    def remove(self) -> None:
        """Give the module back what it had; safe to call twice, also from within a pass."""
        self._guard.wanted = False
        self._mute()
        if self._wrapping is not None:
            self._wrapping.remove()
            self._wrapping = None

    def _around_pass(self, present: OnePass, call: Callable[[], object]) -> object:
        if not self._guard.run(partial(self._is_ours, present), default=False):
            self._guard.other_begins()
            return call()
        try:
            return self._guard.iteration(partial(self._batch, present), call, prepare=self._listen)
        finally:
            self._mute()

    def _is_ours(self, present: OnePass) -> bool:
        """Whether a pass trains the first model of this process, the only one that is served."""
        if not present.trains:
            return False
        if present.chunks[0] is self._first:
            return True
        self._say_once()
        return False

    def _batch(self, present: OnePass) -> Batch:
        self.present, self._load = present, present.load
        return replace(present.batch, loads=self._read_ahead(present))

    def _read_ahead(self, present: OnePass) -> tuple[Load, ...] | None:
        """Count the microbatches of a pass before it, where this rank is the first stage and has them.

        The keywords are those that the call is made with.
        """
        data = present.keywords.get(_DATA)
        if not self.reads_ahead or not hasattr(data, "__next__") or present.place()[0] > 0:
            return None
        if self._ahead is None or not self._ahead.reads(data):
            self._ahead = ReadAhead(cast("Iterator[object]", data))
        present.replace_keyword(_DATA, self._ahead)
        return self._ahead.loads(present.batch.microbatches)

    def _say_once(self) -> None:
        """Inform the user that another model trains in this process, and what becomes of it."""
        if not self._told:
            self._told = True
            say("a second model trains in this process: it runs at default clocks; the first one is served")

    def _listen(self) -> None:
        for name, kind in STEPS.items():
            load = self._load_of if kind is Kind.FORWARD else None
            self._replace(
                self._module, name, around(self._guard, kind, getattr(self._module, name), load=load)
            )
        for chunk in self._reducing:
            first, last = chunk is self._reducing[0], chunk is self._reducing[-1]
            original = cast("Function", getattr(chunk, _SYNC))
            listened = around(self._guard, Kind.REDUCE_GRADS, original, begins=first, ends=last)
            self._replace(chunk, _SYNC, listened)

    def _load_of(self, *_: object) -> Load | None:
        return self._load

    def _replace(self, owner: object, name: str, listened: Function) -> None:
        own = vars(owner)
        self._undo.append(
            partial(own.update, {name: own[name]}) if name in own else partial(own.pop, name, None)
        )
        own[name] = listened

    def _mute(self) -> None:
        while self._undo:
            self._undo.pop()()


def reducing(chunks: list[nn.Module]) -> list[nn.Module]:
    """Find what reduces each chunk's gradients: the chunk itself, or a module inside (NeMo nests them)."""
    found = (next((m for m in chunk.modules() if hasattr(m, _SYNC)), None) for chunk in chunks)
    return [one for one in found if one is not None]
