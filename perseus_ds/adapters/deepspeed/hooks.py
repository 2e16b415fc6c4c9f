"""Stand between the engine and its instructions: on one instance, keeping and calling the originals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import wraps

from perseus_ds.adapters.deepspeed.forward_size import forward_size
from perseus_ds.adapters.deepspeed.seam import KINDS, Handler, PipelineEngine, PipeSchedule, is_training
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, InstructionListener
from perseus_ds.schedule import Kind

_MARK = "__perseus_ds__"
_INSTANCE_ATTRIBUTES = ("_INSTRUCTION_MAP", "_exec_schedule")


class Hooks:
    """Instance attributes on one engine; no class, no module is touched.

    The engine looks both names up through ``self``, so that instance attributes suffice (unchanged in
    DeepSpeed from 0.12.6 to 0.19.8). ``silent`` are kinds that do nothing on this stage and are not in its
    order.
    """

    def __init__(
        self, engine: PipelineEngine, listener: InstructionListener, *, silent: Collection[Kind] = ()
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._silent = silent
        self._wanted = False
        self.present: PipeSchedule | None = None
        self._before = {name: vars(engine)[name] for name in _INSTANCE_ATTRIBUTES if name in vars(engine)}

    def install(self) -> None:
        """Begin to listen."""
        engine = self._engine
        if getattr(engine._exec_schedule, _MARK, False):  # noqa: SLF001
            raise EngineError("perseus_ds is installed on this engine already")
        handlers = engine._INSTRUCTION_MAP  # noqa: SLF001  # the seam
        engine._INSTRUCTION_MAP = {  # noqa: SLF001
            command: self._around(handler, KINDS.get(command.__name__, Kind.UNKNOWN))
            for command, handler in handlers.items()
        }
        engine._exec_schedule = self._around_schedule(engine._exec_schedule)  # type: ignore[assignment, method-assign] # noqa: SLF001

    def remove(self) -> None:
        """Give the engine back what it had; safe to call twice, also from within an iteration."""
        self._wanted = False
        for name in _INSTANCE_ATTRIBUTES:
            vars(self._engine).pop(name, None)
        vars(self._engine).update(self._before)

    def _around(self, handler: Handler, kind: Kind) -> Handler:
        if kind in self._silent:
            return handler
        before, after = self._listener.before, self._listener.after

        @wraps(handler)
        def listened(engine: object, *args: object, **kwargs: object) -> object:
            if not self._wanted:
                return handler(engine, *args, **kwargs)
            try:
                before(kind, forward_size(engine, kwargs.get("buffer_id")) if kind is Kind.FORWARD else 0)
            except Exception as error:  # noqa: BLE001  # a listener never reaches the host
                self._give_up(error)
            result = handler(engine, *args, **kwargs)
            try:
                after(kind)
            except Exception as error:  # noqa: BLE001
                self._give_up(error)
            return result

        return listened

    def _give_up(self, error: Exception) -> None:
        self.remove()
        sys.stderr.write(f"perseus: off, a listener failed: {error}\n")

    def _around_schedule(
        self, exec_schedule: Callable[[PipeSchedule], None]
    ) -> Callable[[PipeSchedule], None]:
        listener = self._listener

        @wraps(exec_schedule)
        def listened(pipe_schedule: PipeSchedule) -> None:
            if not is_training(pipe_schedule):
                listener.other_schedule_begins()
                exec_schedule(pipe_schedule)
                return
            self.present = pipe_schedule
            self._wanted = listener.iteration_begins(Batch(pipe_schedule.micro_batches))
            try:
                exec_schedule(pipe_schedule)
            except BaseException:
                listener.iteration_broke()
                raise
            finally:
                self._wanted = False
            listener.iteration_ends()

        setattr(listened, _MARK, True)
        return listened
