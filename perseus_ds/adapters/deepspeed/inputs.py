"""How much each forward of a pipeline engine works on: counted on the host, where it takes a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Protocol, cast

from perseus_ds.adapters.counting import counted
from perseus_ds.adapters.deepspeed.seam import PipelineEngine
from perseus_ds.adapters.reading_ahead import ReadAhead
from perseus_ds.adapters.replacing import marked
from perseus_ds.runtime.adapter import GuardedListener
from perseus_ds.schedule import Load

NEXT_BATCH = "_next_batch"
"""The method that takes a microbatch from the data iterator; without it shapes alone are counted."""


class _Buffers(Protocol):
    """What we use of ``PipelineEngine``: where it keeps the inputs of a forward, and where they come from."""

    pipe_buffers: dict[str, list[object]]
    is_pipe_partitioned: bool
    data_iterator: Iterator[object] | None

    def is_first_stage(self) -> bool:
        """Whether inputs come from the data."""


class _Tensor(Protocol):
    """What we use of a tensor."""

    shape: Sequence[int]


class Inputs:
    """What one engine's forwards work on.

    The first stage's microbatches are counted as they leave the data iterator, before they are copied to the
    device. What a later stage receives is known by its shape alone.

    Source: ``_exec_load_micro_batch``, ``_next_batch``, ``_exec_forward_pass``, deepspeed@0.19.8.
    """

    def __init__(self, engine: PipelineEngine) -> None:
        self._engine = engine
        self._loaded: list[Load | None] = []
        self._ahead: ReadAhead | None = None

    def install(self, guard: GuardedListener) -> None:
        """Count what the engine takes from its data iterator."""
        original = getattr(self._engine, NEXT_BATCH, None)
        if original is not None:
            vars(self._engine)[NEXT_BATCH] = self._around_next(original, guard)

    def load_of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Load | None:
        """Return the load of a forward that is about to be issued."""
        if self._loaded and self._is_first():
            return self._loaded.pop(0)
        return _load_of_shape(args, kwargs)

    def begin(self, microbatches: int, *, reads_ahead: bool) -> tuple[Load, ...] | None:
        """Begin a training iteration; return its loads where they are read ahead, and this rank has data.

        Within the iteration alone the engine's data iterator is another one (`end`).
        """
        self._loaded.clear()
        engine = cast("_Buffers", self._engine)
        data = getattr(engine, "data_iterator", None)
        if not reads_ahead or data is None or not self._is_first():
            return None
        if self._ahead is None or not self._ahead.reads(data):
            self._ahead = ReadAhead(data)
        engine.data_iterator = self._ahead
        return self._ahead.loads(microbatches)

    def end(self) -> None:
        """Give the engine its own iterator back, unless some of what was read was not asked for."""
        engine, ahead = cast("_Buffers", self._engine), self._ahead
        if ahead is None or not ahead.is_empty:
            return
        self._ahead = None
        if engine.data_iterator is ahead:
            engine.data_iterator = ahead.data

    def _around_next(self, original: Callable[..., object], guard: GuardedListener) -> Callable[..., object]:
        @wraps(original)
        def counting(*args: object, **kwargs: object) -> object:
            batch = original(*args, **kwargs)
            guard.run(partial(self._count, batch), None)
            return batch

        return marked(counting)

    def _count(self, batch: object) -> None:
        inputs = batch[0] if isinstance(batch, tuple | list) and len(batch) else batch
        self._loaded.append(counted(inputs))

    def _is_first(self) -> bool:
        ask = getattr(self._engine, "is_first_stage", None)
        return bool(ask()) if callable(ask) else False


def _load_of_shape(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Load | None:
    """Count a forward's first input, which lies in its buffer by now.

    Where tensor-parallel peers share the work of sending, the first of what was received is its description
    and the second this rank's part. None where the engine keeps its inputs elsewhere.
    """
    holder = cast("_Buffers", args[0])
    try:
        inputs = holder.pipe_buffers["inputs"][cast("int", kwargs.get("buffer_id"))]
        if not isinstance(inputs, tuple):
            return Load.of_shape(cast("_Tensor", inputs).shape)
        described = holder.is_pipe_partitioned and not holder.is_first_stage()
        return Load.of_shape(cast("_Tensor", inputs[1 if described else 0]).shape)
    except Exception:  # noqa: BLE001  # an engine may keep anything there
        return None
