"""Stand between the user's loop and the engine: on one instance, keeping and calling the originals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps

import torch

from perseus_ds.adapters.counting import counted
from perseus_ds.adapters.replacing import is_ours, marked, take_back
from perseus_ds.adapters.zero.seam import Engine
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, GuardedListener, InstructionListener
from perseus_ds.schedule import Kind

Begin = Callable[..., Kind | None]
End = Callable[[Kind | None], None]

_ALWAYS_REDUCES = 2  # from this ZeRO stage on every microbatch's gradients are reduced


class Hooks:
    """Instance attributes on one engine; no class, no module is touched.

    A forward in training begins an iteration; the step at the boundary of gradient accumulation ends it. A
    backward begins with ``engine.backward`` or with the engine's own prologue (``loss.backward()``, DeepSpeed
    0.18.3 and later), and ends where gradients are reduced, or with itself.
    """

    def __init__(self, engine: Engine, listener: InstructionListener) -> None:
        self._engine = engine
        self._guard = GuardedListener(listener, self.remove)
        self._always_reduces = engine.zero_optimization_stage() >= _ALWAYS_REDUCES
        self._running = False
        self._in_backward = False
        self._others = False
        self._around: Mapping[str, tuple[Begin, End]] = {
            "forward": (self._begin_forward, self._end),
            "backward": (self._begin_backward, self._end_backward),
            "_backward_prologue": (self._begin_backward, _nothing),
            "_backward_epilogue": (_nothing, self._end_backward),
            "allreduce_gradients": (self._begin_reduction, self._end),
            "_take_model_step": (partial(self._begin, Kind.STEP), self._end),
            "step": (self._begin_step, self._end_step),
        }

    def install(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: we are installed already.
        """
        if any(is_ours(vars(self._engine).get(name)) for name in self._around):
            raise EngineError("perseus_ds is installed on this engine already")
        for name, (begin, end) in self._around.items():
            original = getattr(self._engine, name, None)
            if original is not None:
                setattr(self._engine, name, self._wrapped(original, begin, end))

    def remove(self) -> None:
        """Give the engine back what it had; safe to call twice, also from within an iteration."""
        self._running = self._guard.wanted = self._in_backward = False
        take_back(self._engine)

    def _wrapped(self, original: Callable[..., object], begin: Begin, end: End) -> Callable[..., object]:
        """Have ``begin`` called before the original, and ``end`` after it with what ``begin`` returned."""

        @wraps(original)
        def listened(*args: object, **kwargs: object) -> object:
            begun = self._guard.run(partial(begin, *args, **kwargs), None)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._broke()
                raise
            self._guard.run(partial(end, begun), None)
            return result

        return marked(listened)

    def _begin(self, kind: Kind, *_: object, **__: object) -> Kind:
        self._guard.before(kind)
        return kind

    def _end(self, kind: Kind | None) -> None:
        if kind is not None:
            self._guard.after(kind)

    def _begin_forward(self, *args: object, **kwargs: object) -> Kind | None:
        if not (self._engine.training and torch.is_grad_enabled()):
            if not self._others:
                self._others = True
                self._guard.other_begins()
            return None
        self._others = False
        if not self._running:
            self._running = True
            self._guard.begin(lambda: Batch(self._engine.gradient_accumulation_steps()))
        self._guard.before(Kind.FORWARD, lambda: counted([*args, kwargs]))
        return Kind.FORWARD

    def _begin_backward(self, *_: object, **__: object) -> Kind | None:
        if self._guard.wanted and not self._in_backward:
            self._in_backward = True
            self._guard.before(Kind.BACKWARD)
        return None

    def _end_backward(self, _: Kind | None = None) -> None:
        if self._in_backward:
            self._in_backward = False
            self._guard.after(Kind.BACKWARD)

    def _begin_reduction(self, *_: object, **__: object) -> Kind | None:
        self._end_backward()
        if not (self._always_reduces or self._engine.is_gradient_accumulation_boundary()):
            return None
        return self._begin(Kind.REDUCE_GRADS)

    def _begin_step(self, *_: object, **__: object) -> Kind | None:
        return Kind.STEP if self._engine.is_gradient_accumulation_boundary() else None

    def _end_step(self, last: Kind | None) -> None:
        if last is not None and self._running:
            self._running = False
            self._guard.end()

    def _broke(self) -> None:
        """Describe once that the host's own code failed, however many of our frames it passes."""
        if self._running:
            self._running = self._in_backward = False
            self._guard.broke()


def _nothing(*_: object, **__: object) -> None:
    """Begin or end nothing."""
