"""Every name of DeepSpeed and torch that we rely on and that no one promised us, checked before use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol, cast

from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Kind

TESTED_DEEPSPEED = ("0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.8")
"""Releases on which the pipeline engine was run with us attached."""

ENGINE_MODULE = "deepspeed.runtime.pipe.engine"
SCHEDULE_MODULE = "deepspeed.runtime.pipe.schedule"

KINDS: Mapping[str, Kind] = {
    "LoadMicroBatch": Kind.LOAD,
    "ForwardPass": Kind.FORWARD,
    "BackwardPass": Kind.BACKWARD,
    "SendActivation": Kind.SEND_ACTIVATION,
    "RecvActivation": Kind.RECV_ACTIVATION,
    "SendGrad": Kind.SEND_GRAD,
    "RecvGrad": Kind.RECV_GRAD,
    "ReduceTiedGrads": Kind.REDUCE_TIED,
    "ReduceGrads": Kind.REDUCE_GRADS,
    "OptimizerStep": Kind.STEP,
}
"""DeepSpeed's instruction classes and our words for them."""

Handler = Callable[..., object]


class PipeSchedule(Protocol):
    """What we use of ``deepspeed.runtime.pipe.schedule.PipeSchedule``."""

    micro_batches: int
    stages: int

    def __init__(self, micro_batches: int, stages: int, stage_id: int) -> None: ...

    def steps(self) -> object:
        """Yield the lists of instructions of every step."""


class Grid(Protocol):
    """What we use of ``PipelineParallelGrid``."""

    pipe_parallel_size: int
    data_parallel_size: int
    model_parallel_size: int

    def get_data_parallel_rank(self) -> int:
        """Which replica this rank belongs to."""


class PipelineEngine(Protocol):
    """What we use of ``deepspeed.runtime.pipe.engine.PipelineEngine``."""

    _INSTRUCTION_MAP: dict[type, Handler]
    grid: Grid
    num_stages: int
    stage_id: int
    micro_batches: int
    micro_batch_size: int
    global_rank: int
    global_steps: int
    local_rank: int

    def _exec_schedule(self, pipe_schedule: PipeSchedule) -> None: ...


@dataclass(frozen=True, slots=True)
class Need:
    """One name, where it must be, and what for."""

    name: str
    use: str


NEEDS = (
    Need("_exec_schedule", "knowing when an iteration starts and ends"),
    Need("_INSTRUCTION_MAP", "running around every instruction"),
    Need("grid", "knowing replica and stage"),
    Need("num_stages", "the pipeline's depth"),
    Need("stage_id", "this rank's place in it"),
    Need("micro_batches", "recognising changed batches"),
    Need("micro_batch_size", "recognising the job"),
    Need("global_rank", "speaking once"),
    Need("_config", "reading the perseus block"),
    Need("module", "recognising the job"),
)


def deepspeed_version() -> str:
    """The release that is imported, which a PYTHONPATH can make another than the installed one."""
    imported = getattr(sys.modules.get("deepspeed"), "__version__", None)
    return str(imported).strip() if imported else version("deepspeed")


def check(engine: object) -> PipelineEngine:
    """Return the engine with its type, if everything that we rely on is there.

    Raises:
        UnsupportedEngineError: naming what is missing, the DeepSpeed found and those tested.
    """
    if type(engine).__name__ == "DualPipeVEngine":
        raise UnsupportedEngineError(
            "DualPipe-V runs two model chunks per stage, which is not planned yet",
            hint="train with the 1F1B schedule, or without the perseus block",
        )
    for need in NEEDS:
        if not hasattr(engine, need.name):
            raise _unsupported(f"PipelineEngine.{need.name}, used for {need.use}, is not there")
    found = cast("PipelineEngine", engine)
    instructions = {kind.__name__ for kind in found._INSTRUCTION_MAP}  # noqa: SLF001  # the seam itself
    missing = [name for name in KINDS if name not in instructions]
    if missing:
        raise _unsupported(f"instruction {', '.join(missing)} is not in PipelineEngine._INSTRUCTION_MAP")
    return found


def raw_config(engine: object) -> Mapping[str, object]:
    """The DeepSpeed configuration as the user wrote it; empty where the engine keeps none.

    An unknown top-level block passes DeepSpeed silently and stays in ``_config._param_dict``.
    """
    content = getattr(getattr(engine, "_config", None), "_param_dict", None)
    return cast("Mapping[str, object]", content) if isinstance(content, Mapping) else {}


def is_training(schedule: object) -> bool:
    """Whether a schedule trains: ``eval_batch`` runs the same instructions under another class."""
    return any(kind.__name__ == "TrainSchedule" for kind in type(schedule).__mro__)


def _unsupported(what: str) -> UnsupportedEngineError:
    return UnsupportedEngineError(
        f"DeepSpeed {deepspeed_version()}: {what}", hint=f"tested: {', '.join(TESTED_DEEPSPEED)}"
    )


def crashes_with_timers(release: str) -> bool:
    """Whether this DeepSpeed ends every pipeline job that has its own timers on (0.18.3 to 0.19.8)."""
    numbers = tuple(
        int(active_plan)
        for active_plan in release.split("+", maxsplit=1)[0].split(".")[:3]
        if active_plan.isdigit()
    )
    return (0, 18, 3) <= numbers <= (0, 19, 8)
