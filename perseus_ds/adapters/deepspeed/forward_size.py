"""How much one forward works on: batches may change their shape from step to step."""

from __future__ import annotations

from typing import Protocol, cast


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


def forward_size(engine: object, buffer_id: object) -> int:
    """Count the elements of a forward's first input, which lies in its buffer by now.

    Read off the shape, on the host. Where tensor-parallel peers share the work of sending, the first of what
    was received is its description and the second this rank's part. 0 where the engine keeps its inputs
    elsewhere.

    Source: ``PipelineEngine._exec_forward_pass``, deepspeed@0.19.8.
    """
    holder = cast("_Buffers", engine)
    try:
        inputs = holder.pipe_buffers["inputs"][cast("int", buffer_id)]
        if not isinstance(inputs, tuple):
            return cast("_Tensor", inputs).numel()
        described = holder.is_pipe_partitioned and not holder.is_first_stage()
        return cast("_Tensor", inputs[1 if described else 0]).numel()
    except (AttributeError, IndexError, KeyError, TypeError):
        return 0
