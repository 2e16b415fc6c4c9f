"""Stand between the engine and its instructions: on one instance, keeping and calling the originals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial, wraps
from typing import Protocol, cast

from perseus_ds.adapters.deepspeed.seam import KINDS, PipelineEngine, PipeSchedule, is_training
from perseus_ds.adapters.listening import Listening, around
from perseus_ds.adapters.replacing import is_ours, marked
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, InstructionListener
from perseus_ds.schedule import Kind

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
        self._listening = Listening(listener, self.remove)
        self._silent = silent
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
                self._listening,
                kinds[command],
                handler,
                size=_forward_size if kinds[command] is Kind.FORWARD else None,
            )
            for command, handler in engine._INSTRUCTION_MAP.items()  # noqa: SLF001
        }
        vars(engine)["_exec_schedule"] = self._around_schedule(engine._exec_schedule)  # noqa: SLF001

    def remove(self) -> None:
        """Give the engine back what it had; safe to call twice, also from within an iteration."""
        self._listening.wanted = False
        for name in _INSTANCE_ATTRIBUTES:
            vars(self._engine).pop(name, None)
        vars(self._engine).update(self._before)

    def _around_schedule(self, exec_schedule: Callable[[PipeSchedule], None]) -> Callable[..., object]:
        @wraps(exec_schedule)
        def listened(pipe_schedule: PipeSchedule) -> None:
            if not is_training(pipe_schedule):
                self._listening.other_begins()
                exec_schedule(pipe_schedule)
                return
            self.present = pipe_schedule
            self._listening.iteration(
                Batch(pipe_schedule.micro_batches), partial(exec_schedule, pipe_schedule)
            )

        return marked(listened)


class _Buffers(Protocol):
    """What we use of ``PipelineEngine``: where it keeps the inputs of a forward."""

    pipe_buffers: dict[str, list[object]]
    is_pipe_partitioned: bool

    def is_first_stage(self) -> bool:
        """Whether inputs come from the data."""


class _Tensor(Protocol):
    """What we use of a tensor."""

    def numel(self) -> int:
        """Return the number of elements."""


def _forward_size(args: tuple[object, ...], kwargs: Mapping[str, object]) -> int:
    """Count the elements of a forward's first input, which lies in its buffer by now.

    Read off the shape, on the host. Where tensor-parallel peers share the work of sending, the first of what
    was received is its description and the second this rank's part. 0 where the engine keeps its inputs
    elsewhere.

    Source: ``PipelineEngine._exec_forward_pass``, deepspeed@0.19.8.
    """
    holder = cast("_Buffers", args[0])
    try:
        inputs = holder.pipe_buffers["inputs"][cast("int", kwargs.get("buffer_id"))]
        if not isinstance(inputs, tuple):
            return cast("_Tensor", inputs).numel()
        described = holder.is_pipe_partitioned and not holder.is_first_stage()
        return cast("_Tensor", inputs[1 if described else 0]).numel()
    except (AttributeError, IndexError, KeyError, TypeError):
        return 0
