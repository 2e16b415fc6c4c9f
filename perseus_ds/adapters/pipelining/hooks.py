"""Stand between a schedule and its stages: on these instances, keeping and calling the originals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps

from perseus_ds.adapters.counting import chunks_counted
from perseus_ds.adapters.listening import around
from perseus_ds.adapters.pipelining.seam import Handler, PipelineSchedule, Stage, splits_rows, stages_of
from perseus_ds.adapters.replacing import is_ours, marked
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, GuardedListener, InstructionListener
from perseus_ds.schedule import Kind


class Hooks:
    """Instance attributes on one schedule and its stages; no class, no module is touched.

    torch looks all of them up through the instances (2.13). ``reduces`` is whether the reduction waits for
    other replicas and is in the order.
    """

    def __init__(self, schedule: PipelineSchedule, listener: InstructionListener, *, reduces: bool) -> None:
        self._schedule = schedule
        self._guard = GuardedListener(listener, self.remove)
        self._reduces = reduces
        self._found: list[tuple[object, str, Handler | None]] = []

    def install(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: we listen already.
        """
        schedule = self._schedule
        if is_ours(schedule.step):
            raise EngineError("perseus_ds is installed on this schedule already")
        self._put(schedule, "step", self._around_step(schedule.step))
        self._put(schedule, "_maybe_compute_loss", self._around_loss(schedule._maybe_compute_loss))  # noqa: SLF001  # the seam
        for stage in stages_of(schedule):
            forward = self._around(Kind.FORWARD, stage.forward_one_chunk, ends=not stage.is_last)
            self._put(stage, "forward_one_chunk", forward)
            self._put(stage, "backward_one_chunk", self._around_backward(stage.backward_one_chunk))
            weight = self._around(Kind.BACKWARD_WEIGHT, stage.backward_weight_one_chunk)
            self._put(stage, "backward_weight_one_chunk", weight)
            if self._reduces:
                reduction = self._around(Kind.REDUCE_GRADS, stage.perform_reduce_grad)
                self._put(stage, "perform_reduce_grad", reduction)

    def remove(self) -> None:
        """Give everything back as it was; safe to call twice, also from within an iteration."""
        self._guard.wanted = False
        for holder, name, before in reversed(self._found):
            vars(holder).pop(name, None)
            if before is not None:
                vars(holder)[name] = before
        self._found.clear()

    def _put(self, holder: object, name: str, ours: Handler) -> None:
        self._found.append((holder, name, vars(holder).get(name)))
        vars(holder)[name] = ours

    def _around(self, kind: Kind, handler: Handler, *, ends: bool = True) -> Handler:
        """Of the last stage's forward only the beginning: the loss belongs to it, and comes after it."""
        return around(self._guard, kind, handler, ends=ends)

    def _around_backward(self, handler: Handler) -> Handler:
        """A whole one, or the first half where torch asks for that only."""
        whole, half = (self._around(kind, handler) for kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT))

        @wraps(handler)
        def listened(*args: object, **kwargs: object) -> object:
            return (whole if kwargs.get("full_backward", True) else half)(*args, **kwargs)

        return marked(listened)

    def _around_loss(self, handler: Handler) -> Handler:
        @wraps(handler)
        def listened(stage: Stage, *args: object, **kwargs: object) -> object:
            result = handler(stage, *args, **kwargs)
            if stage.is_last:
                self._guard.after(Kind.FORWARD)
            return result

        return marked(listened)

    def _around_step(self, step: Callable[..., object]) -> Callable[..., object]:
        schedule = self._schedule
        microbatches = schedule._n_microbatches  # noqa: SLF001  # the seam; torch fixes it
        counts = any(getattr(stage, "stage_index", None) == 0 for stage in stages_of(schedule))

        @wraps(step)
        def listened(*args: object, **kwargs: object) -> object:
            if not schedule._has_backward:  # noqa: SLF001  # the seam
                self._guard.other_begins()
                return step(*args, **kwargs)

            def batch() -> Batch:
                counted = counts and splits_rows(schedule)
                return Batch(
                    microbatches, loads=chunks_counted([*args, kwargs], microbatches) if counted else None
                )

            return self._guard.iteration(batch, partial(step, *args, **kwargs))

        return marked(listened)
