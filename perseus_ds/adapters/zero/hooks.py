"""Stand between the user's loop and the engine: on one instance, keeping and calling the originals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps

import torch

from perseus_ds.adapters.counting import counted
from perseus_ds.adapters.listening import Listening
from perseus_ds.adapters.replacing import is_ours, marked, take_back
from perseus_ds.adapters.zero.seam import Engine
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, InstructionListener
from perseus_ds.schedule import Kind, Load

Run = Callable[[], object]

_ALWAYS_REDUCES = 2  # from this ZeRO stage on every microbatch's gradients are reduced


class Hooks:
    """Instance attributes on one engine; no class, no module is touched.

    A forward in training begins an iteration; the step at the boundary of gradient accumulation ends it. A
    backward begins with ``engine.backward`` or with the engine's own prologue (``loss.backward()``, DeepSpeed
    0.18.3 and later), and ends where gradients are reduced, or with itself.
    """

    def __init__(self, engine: Engine, listener: InstructionListener) -> None:
        self._engine = engine
        self._listening = Listening(listener, self.remove)
        self._always_reduces = engine.zero_optimization_stage() >= _ALWAYS_REDUCES
        self._running = False
        self._in_backward = False
        self._others = False
        self._around = {
            "forward": self._around_forward,
            "backward": self._around_backward,
            "_backward_prologue": self._before_backward,
            "_backward_epilogue": self._after_backward,
            "allreduce_gradients": self._around_reduction,
            "_take_model_step": self._around_optimizer,
            "step": self._around_step,
        }

    def install(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: we are installed already.
        """
        if any(is_ours(vars(self._engine).get(name)) for name in self._around):
            raise EngineError("perseus_ds is installed on this engine already")
        for name, around in self._around.items():
            original = getattr(self._engine, name, None)
            if original is not None:
                setattr(self._engine, name, self._wrapped(original, around))

    def remove(self) -> None:
        """Give the engine back what it had; safe to call twice, also from within an iteration."""
        self._running = self._listening.wanted = self._in_backward = False
        take_back(self._engine)

    def _wrapped(
        self, original: Callable[..., object], around: Callable[[Run], object]
    ) -> Callable[..., object]:
        @wraps(original)
        def listened(*args: object, **kwargs: object) -> object:
            try:
                return around(partial(original, *args, **kwargs))
            except BaseException:
                self._broke()
                raise

        return marked(listened)

    def _around_forward(self, run: Run) -> object:
        if not (self._engine.training and torch.is_grad_enabled()):
            if not self._others:
                self._others = True
                self._listening.other_begins()
            return run()
        self._others = False
        if not self._running:
            self._running = True
            self._listening.begins(Batch(self._engine.gradient_accumulation_steps()))
        return self._instruction(Kind.FORWARD, run, load=_load_of(run))

    def _around_backward(self, run: Run) -> object:
        self._begin_backward()
        result = run()
        self._end_backward()
        return result

    def _before_backward(self, run: Run) -> object:
        self._begin_backward()
        return run()

    def _after_backward(self, run: Run) -> object:
        result = run()
        self._end_backward()
        return result

    def _around_reduction(self, run: Run) -> object:
        self._end_backward()
        if not (self._always_reduces or self._engine.is_gradient_accumulation_boundary()):
            return run()
        return self._instruction(Kind.REDUCE_GRADS, run)

    def _around_optimizer(self, run: Run) -> object:
        return self._instruction(Kind.STEP, run)

    def _around_step(self, run: Run) -> object:
        last = self._engine.is_gradient_accumulation_boundary()
        result = run()
        if last and self._running:
            self._running = False
            self._listening.ends()
        return result

    def _instruction(self, kind: Kind, run: Run, *, load: Load | None = None) -> object:
        self._listening.before(kind, load)
        result = run()
        self._listening.after(kind)
        return result

    def _begin_backward(self) -> None:
        if self._listening.wanted and not self._in_backward:
            self._in_backward = True
            self._listening.before(Kind.BACKWARD)

    def _end_backward(self) -> None:
        if self._in_backward:
            self._in_backward = False
            self._listening.after(Kind.BACKWARD)

    def _broke(self) -> None:
        """Describe once that the host's own code failed, however many of our frames it passes."""
        if self._running:
            self._running = self._in_backward = False
            self._listening.broke()


def _load_of(run: Run) -> Load | None:
    """Count what a call was given; None where it was given no tensor."""
    return counted([*run.args, run.keywords]) if isinstance(run, partial) else None
