"""Stand between a schedule and its stages: on these instances, keeping and calling the originals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps

from perseus_ds.adapters.pipelining.seam import Handler, PipelineSchedule, Stage, stages_of
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, InstructionListener
from perseus_ds.schedule import Kind

_MARK = "_is_perseus_ds"


class Hooks:
    """Instance attributes on one schedule and its stages; no class, no module is touched.

    torch looks all of them up through the instances (2.13). ``reduces`` is whether the reduction waits for
    other replicas and is in the order.
    """

    def __init__(self, schedule: PipelineSchedule, listener: InstructionListener, *, reduces: bool) -> None:
        self._schedule = schedule
        self._listener = listener
        self._reduces = reduces
        self._wanted = False
        self._found: list[tuple[object, str, Handler | None]] = []

    def install(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: we listen already.
        """
        schedule = self._schedule
        if getattr(schedule.step, _MARK, False):
            raise EngineError("perseus_ds is installed on this schedule already")
        self._put(schedule, "step", self._around_step(schedule.step))
        self._put(schedule, "_maybe_compute_loss", self._around_loss(schedule._maybe_compute_loss))  # noqa: SLF001  # the seam
        for stage in stages_of(schedule):
            self._put(stage, "forward_one_chunk", self._around_forward(stage))
            backward = self._around(stage.backward_one_chunk, Kind.BACKWARD, Kind.BACKWARD_INPUT)
            self._put(stage, "backward_one_chunk", backward)
            weight = self._around(stage.backward_weight_one_chunk, Kind.BACKWARD_WEIGHT)
            self._put(stage, "backward_weight_one_chunk", weight)
            if self._reduces:
                reduction = self._around(stage.perform_reduce_grad, Kind.REDUCE_GRADS)
                self._put(stage, "perform_reduce_grad", reduction)

    def remove(self) -> None:
        """Give everything back as it was; safe to call twice, also from within an iteration."""
        self._wanted = False
        for holder, name, before in reversed(self._found):
            vars(holder).pop(name, None)
            if before is not None:
                vars(holder)[name] = before
        self._found.clear()

    def _put(self, holder: object, name: str, ours: Handler) -> None:
        self._found.append((holder, name, vars(holder).get(name)))
        vars(holder)[name] = ours

    def _give_up(self, error: Exception) -> None:
        self.remove()
        sys.stderr.write(f"perseus: off, a listener failed: {error}\n")

    def _around(self, handler: Handler, whole: Kind, split: Kind | None = None) -> Handler:
        """Announce ``whole``, or ``split`` where torch asks for the first half of a backward only."""
        before, after = self._listener.before, self._listener.after

        @wraps(handler)
        def listened(*args: object, **kwargs: object) -> object:
            if not self._wanted:
                return handler(*args, **kwargs)
            kind = whole if split is None or kwargs.get("full_backward", True) else split
            try:
                before(kind)
            except Exception as error:  # noqa: BLE001  # a listener never reaches the host
                self._give_up(error)
            result = handler(*args, **kwargs)
            if self._wanted:
                try:
                    after(kind)
                except Exception as error:  # noqa: BLE001
                    self._give_up(error)
            return result

        return listened

    def _around_forward(self, stage: Stage) -> Handler:
        """Of the last stage only the beginning: the loss belongs to its forward, and comes after it."""
        handler = stage.forward_one_chunk
        if not stage.is_last:
            return self._around(handler, Kind.FORWARD)

        @wraps(handler)
        def listened(*args: object, **kwargs: object) -> object:
            if self._wanted:
                try:
                    self._listener.before(Kind.FORWARD)
                except Exception as error:  # noqa: BLE001  # a listener never reaches the host
                    self._give_up(error)
            return handler(*args, **kwargs)

        return listened

    def _around_loss(self, handler: Handler) -> Handler:
        @wraps(handler)
        def listened(stage: Stage, *args: object, **kwargs: object) -> object:
            result = handler(stage, *args, **kwargs)
            if self._wanted and stage.is_last:
                try:
                    self._listener.after(Kind.FORWARD)
                except Exception as error:  # noqa: BLE001
                    self._give_up(error)
            return result

        return listened

    def _around_step(self, step: Callable[..., object]) -> Callable[..., object]:
        schedule, listener = self._schedule, self._listener
        batch = Batch(schedule._n_microbatches)  # noqa: SLF001  # the seam; torch fixes it, and all shapes

        @wraps(step)
        def listened(*args: object, **kwargs: object) -> object:
            if not schedule._has_backward:  # noqa: SLF001  # the seam
                listener.other_schedule_begins()
                return step(*args, **kwargs)
            self._wanted = listener.iteration_begins(batch)
            try:
                result = step(*args, **kwargs)
            except BaseException:
                listener.iteration_broke()
                raise
            finally:
                self._wanted = False
            listener.iteration_ends()
            return result

        setattr(listened, _MARK, True)
        return listened
