"""Every name of DeepSpeed and torch that we rely on and that no one promised us, checked before use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, cast

from perseus_ds.adapters.deepspeed_engine.facts import deepspeed_release
from perseus_ds.adapters.required_names import RequiredName
from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.schedule import Kind

KINDS: Mapping[str, Kind] = {
    "LoadMicroBatch": Kind.LOAD,
    "ForwardPass": Kind.FORWARD,
    "BackwardPass": Kind.BACKWARD,
    "BackwardOnlyPass": Kind.BACKWARD_INPUT,
    "WeightPass": Kind.BACKWARD_WEIGHT,
    "CommitP2P": Kind.COMMIT,
    "SendActivation": Kind.SEND_ACTIVATION,
    "RecvActivation": Kind.RECV_ACTIVATION,
    "SendGrad": Kind.SEND_GRAD,
    "RecvGrad": Kind.RECV_GRAD,
    "ReduceTiedGrads": Kind.REDUCE_TIED,
    "ReduceGrads": Kind.REDUCE_GRADS,
    "OptimizerStep": Kind.STEP,
}
"""DeepSpeed's instruction classes and our words for them.

The split backward is that of Megatron-DeepSpeed's zero-bubble schedule, ``CommitP2P`` that of DualPipe-V.
"""

LATER = ("BackwardOnlyPass", "WeightPass", "CommitP2P")
"""Classes that not every release, and not every schedule, has."""

MOST_STEPS = 200_000
"""Of one rank in one iteration: fifty thousand microbatches take fewer."""

_TRAINS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.STEP})

Handler = Callable[..., object]


class PipeSchedule(Protocol):
    """What we use of ``deepspeed.runtime.pipe.schedule.PipeSchedule``."""

    micro_batches: int
    stages: int

    def __init__(self, micro_batches: int, stages: int, stage_id: int) -> None: ...

    def steps(self) -> Iterable[Iterable[object]]:
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


REQUIRED_NAMES = (
    RequiredName("_exec_schedule", "knowing when an iteration starts and ends"),
    RequiredName("_INSTRUCTION_MAP", "running around every instruction"),
    RequiredName("grid", "knowing replica and stage"),
    RequiredName("num_stages", "the pipeline's depth"),
    RequiredName("stage_id", "this rank's place in it"),
    RequiredName("micro_batches", "recognising changed batches"),
    RequiredName("micro_batch_size", "recognising the job"),
    RequiredName("global_rank", "speaking once"),
    RequiredName("_config", "reading the perseus block"),
    RequiredName("module", "recognising the job"),
)


def check(engine: object) -> PipelineEngine:
    """Return the engine with its type, if everything that we rely on is there.

    Raises:
        UnsupportedEngineError: naming what is missing, the DeepSpeed found and those tested.
    """
    release = deepspeed_release()
    release.check(engine, REQUIRED_NAMES, where="PipelineEngine")
    found = cast("PipelineEngine", engine)
    instructions = {kind.__name__ for kind in found._INSTRUCTION_MAP}  # noqa: SLF001  # the seam itself
    missing = [name for name in KINDS if name not in instructions and name not in LATER]
    if missing:
        raise release.unsupported(
            f"instruction {', '.join(missing)} is not in PipelineEngine._INSTRUCTION_MAP"
        )
    return found


def is_training(schedule: PipeSchedule) -> bool:
    """Whether a schedule trains: whether its stream holds a backward or an optimizer step.

    ``eval_batch`` runs the same instructions without them, under whatever class. A stream is walked once for
    every class, size and ``forward_only``, up to its first such instruction. One that has none and does not
    end does not train.
    """
    key = (
        type(schedule),
        schedule.micro_batches,
        schedule.stages,
        getattr(schedule, "stage_id", None),
        getattr(schedule, "forward_only", None),
    )
    if key not in _trains:
        try:
            _trains[key] = any(KINDS.get(type(command).__name__) in _TRAINS for command in commands(schedule))
        except UnsupportedEngineError:
            _trains[key] = False
    return _trains[key]


def commands(pipe_schedule: PipeSchedule) -> Iterator[object]:
    """Walk a rank's stream; each call of ``steps`` makes a new one.

    Raises:
        UnsupportedEngineError: it has not ended after more instructions than any iteration has.
    """
    for walked, step in enumerate(pipe_schedule.steps()):
        yield from step
        if walked >= MOST_STEPS:
            raise UnsupportedEngineError(
                f"the schedule {type(pipe_schedule).__name__} has not ended after {MOST_STEPS} steps",
                hint="its steps() has to end with the iteration",
            )


_trains: dict[tuple[object, ...], bool] = {}


def crashes_with_timers(release: str) -> bool:
    """Whether this DeepSpeed ends every pipeline job that has its own timers on (0.18.3 to 0.19.8)."""
    numbers = tuple(int(part) for part in release.split("+", maxsplit=1)[0].split(".")[:3] if part.isdigit())
    return (0, 18, 3) <= numbers <= (0, 19, 8)
