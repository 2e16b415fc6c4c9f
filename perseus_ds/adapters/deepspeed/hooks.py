"""Stand between the engine and its instructions: on one instance, keeping and calling the originals."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, wraps

from perseus_ds.adapters.deepspeed.inputs import NEXT_BATCH, Inputs
from perseus_ds.adapters.deepspeed.seam import KINDS, PipelineEngine, PipeSchedule, is_training
from perseus_ds.adapters.listening import around
from perseus_ds.adapters.replacing import is_ours, marked
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, GuardedListener, InstructionListener
from perseus_ds.schedule import Kind

_INSTANCE_ATTRIBUTES = ("_INSTRUCTION_MAP", "_exec_schedule", NEXT_BATCH)


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
        self._guard = GuardedListener(listener, self.remove)
        self._silent = silent
        self._inputs = Inputs(engine)
        self.reads_ahead = False
        self.present: PipeSchedule | None = None
        self._before = {name: vars(engine)[name] for name in _INSTANCE_ATTRIBUTES if name in vars(engine)}

    def install(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: we listen already.
        """
        engine = self._engine
        if is_ours(engine._exec_schedule):  # noqa: SLF001
            raise EngineError("perseus_ds is installed on this engine already")
        kinds = {command: KINDS.get(command.__name__, Kind.UNKNOWN) for command in engine._INSTRUCTION_MAP}  # noqa: SLF001  # the seam
        engine._INSTRUCTION_MAP = {  # noqa: SLF001
            command: handler
            if kinds[command] in self._silent
            else around(
                self._guard,
                kinds[command],
                handler,
                load=self._inputs.load_of if kinds[command] is Kind.FORWARD else None,
            )
            for command, handler in engine._INSTRUCTION_MAP.items()  # noqa: SLF001
        }
        self._inputs.install(self._guard)
        vars(engine)["_exec_schedule"] = self._around_schedule(engine._exec_schedule)  # noqa: SLF001

    def remove(self) -> None:
        """Give the engine back what it had; safe to call twice, also from within an iteration."""
        self._guard.wanted = False
        for name in _INSTANCE_ATTRIBUTES:
            vars(self._engine).pop(name, None)
        vars(self._engine).update(self._before)

    def _around_schedule(self, exec_schedule: Callable[[PipeSchedule], None]) -> Callable[..., object]:
        @wraps(exec_schedule)
        def listened(pipe_schedule: PipeSchedule) -> None:
            if not self._guard.run(partial(is_training, pipe_schedule), default=False):
                self._guard.other_begins()
                exec_schedule(pipe_schedule)
                return
            try:
                self._guard.iteration(
                    partial(self._batch, pipe_schedule), partial(exec_schedule, pipe_schedule)
                )
            finally:
                self._inputs.end()

        return marked(listened)

    def _batch(self, pipe_schedule: PipeSchedule) -> Batch:
        self.present = pipe_schedule
        microbatches = pipe_schedule.micro_batches
        return Batch(microbatches, loads=self._inputs.begin(microbatches, reads_ahead=self.reads_ahead))
