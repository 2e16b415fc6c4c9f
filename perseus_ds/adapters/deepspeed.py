"""Pipeline engines of DeepSpeed: hooks on the instance, the order read off the engine's own schedule."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import count
from types import ModuleType
from typing import Any, cast

import torch
import torch.distributed as dist

from perseus_ds.adapters.base import (
    HookedAdapter,
    Release,
    detach_host,
    dtypes_of,
    is_ours,
    mark_as_ours,
    on_construction,
    on_first_call,
)
from perseus_ds.adapters.deepspeed_settings import (
    TESTED_DEEPSPEED,
    crashes_with_timers,
    deepspeed_version,
    is_pipeline,
    is_switched_on,
    read_request,
    tunes_itself,
)
from perseus_ds.adapters.input_size import ReadAhead, count_load
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, Place, SyncPoint
from perseus_ds.runtime.place import describe_modules, join_orders, matmul_weight
from perseus_ds.schedule import Instruction, Kind, Load, Order, Schedule

# Every name of DeepSpeed and torch that we rely on and that no one promised us, checked before use.

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
"""DeepSpeed's instruction classes and their kinds.

The split backward is that of Megatron-DeepSpeed's zero-bubble schedule, ``CommitP2P`` that of DualPipe-V.
"""

LATER = ("BackwardOnlyPass", "WeightPass", "CommitP2P")
"""Classes that not every release, and not every schedule, has."""

MOST_STEPS = 200_000
"""Bound on the instructions of one rank in one iteration: fifty thousand microbatches take fewer."""

_TRAINS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.STEP})

Handler = Callable[..., object]


# Objects of DeepSpeed; REQUIRED_NAMES lists what is used of them.
PipeSchedule = Any  # deepspeed.runtime.pipe.schedule.PipeSchedule
PipelineEngine = Any  # deepspeed.runtime.pipe.engine.PipelineEngine
HostEngine = Any  # deepspeed.runtime.engine.DeepSpeedEngine

REQUIRED_NAMES = {
    "_exec_schedule": "knowing when an iteration starts and ends",
    "_INSTRUCTION_MAP": "running around every instruction",
    "grid": "knowing replica and stage",
    "num_stages": "the pipeline's depth",
    "stage_id": "this rank's place in it",
    "micro_batches": "recognising changed batches",
    "micro_batch_size": "recognising the job",
    "global_rank": "speaking once",
    "_config": "reading the perseus block",
    "module": "recognising the job",
}


def deepspeed_release() -> Release:
    """Return the release that is imported, with those tested."""
    return Release("DeepSpeed", deepspeed_version(), TESTED_DEEPSPEED)


def check(engine: object) -> PipelineEngine:
    """Return the engine with its type, if everything that we rely on is there.

    Raises:
        EngineError: naming what is missing, the DeepSpeed found and those tested.
    """
    release, found = deepspeed_release(), cast("PipelineEngine", engine)
    release.check(found, REQUIRED_NAMES, where="PipelineEngine")
    instructions = {kind.__name__ for kind in found._INSTRUCTION_MAP}  # noqa: SLF001
    missing = [name for name in KINDS if name not in instructions and name not in LATER]
    if missing:
        raise release.refusal(f"instruction {', '.join(missing)} is not in PipelineEngine._INSTRUCTION_MAP")
    return found


def is_training(schedule: PipeSchedule) -> bool:
    """Return whether a schedule trains: whether its stream holds a backward or an optimizer step.

    ``eval_batch`` runs the same instructions without them, under whatever class. A stream is walked once for
    every class, size and ``forward_only``, up to its first such instruction. One that has none and does not
    end does not train.
    """
    microbatches, stages = getattr(schedule, "micro_batches", None), getattr(schedule, "stages", None)
    stage, forward_only = getattr(schedule, "stage_id", None), getattr(schedule, "forward_only", None)
    key = type(schedule), microbatches, stages, stage, forward_only
    if key not in _trains:
        try:
            _trains[key] = any(KINDS.get(type(command).__name__) in _TRAINS for command in commands(schedule))
        except EngineError:
            _trains[key] = False
    return _trains[key]


def commands(pipe_schedule: PipeSchedule) -> Iterator[object]:
    """Walk a rank's stream; each call of ``steps`` makes a new one.

    Raises:
        EngineError: it has not ended after more instructions than any iteration has.
    """
    for walked, step in enumerate(pipe_schedule.steps()):
        yield from step
        if walked >= MOST_STEPS:
            raise EngineError(
                f"the schedule {type(pipe_schedule).__name__} has not ended after {MOST_STEPS} steps",
                hint="its steps() has to end with the iteration",
            )


_trains: dict[tuple[object, ...], bool] = {}


def watch(module: ModuleType) -> None:
    """Look at every PipelineEngine after it is built; called once DeepSpeed's pipeline module is there."""
    on_construction(module.PipelineEngine, attach)


serves = is_pipeline


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this engine from its first training iteration on, if it is asked for.

    ``config`` is a block given in code; without it the engine's own configuration, or ``PERSEUS_CONFIG``,
    states.

    Waiting until then lets subclasses finish their construction. Calling it again, or for an engine without
    an enabled ``perseus`` block, does nothing. What goes wrong is one line in the log and training at default
    clocks, unless the block has ``"on_error": "raise"``.
    """
    content = read_request(engine, config)
    if content is None or "_exec_schedule" in vars(engine):
        return
    from perseus_ds.runtime.attach import activate, decline, say  # noqa: PLC0415  # heavy, and now needed

    block = content.get("perseus")
    try:
        found = check(engine)
    except Exception as error:  # noqa: BLE001  # the host wins
        decline(error, block)
        return
    if tunes_itself(content):
        say("off: autotuning measures the job itself")
        return
    if warning := _timers(found, content):
        say(warning)

    def serve(pipe_schedule: PipeSchedule) -> None:
        activate(engine, partial(DeepSpeedAdapter, found, pipe_schedule), block=block)

    on_first_call(engine, "_exec_schedule", ready=is_training, serve=serve)


detach = detach_host


def _timers(engine: PipelineEngine, content: Mapping[str, object]) -> str:
    """Return a warning of a crash that is DeepSpeed's own."""
    on = content.get("wall_clock_breakdown") is True or is_switched_on(content.get("flops_profiler"))
    if not on or engine.num_stages == 1 or not crashes_with_timers(deepspeed_version()):
        return ""
    return (
        f"DeepSpeed {deepspeed_version()} crashes pipeline jobs with wall_clock_breakdown or "
        "flops_profiler on ('timer has already been started'), with us or without: turn both off"
    )


_OF_THE_BUFFER = frozenset(
    {Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.SEND_ACTIVATION, Kind.SEND_GRAD, Kind.RECV_GRAD}
)
"""Kinds that work on the microbatch whose forward ran last in their buffer; all others go in turn."""

_OF_A_STAGE = _OF_THE_BUFFER | {Kind.FORWARD, Kind.BACKWARD_WEIGHT, Kind.RECV_ACTIVATION}
"""Kinds that work for one model stage; all others a rank does as a whole."""


def order_of(pipe_schedule: PipeSchedule, rank: int, *, without: Collection[Kind] = ()) -> Order:
    """Give every command of one rank its model stage and its microbatch.

    A rank runs stage ``rank``, and in phase 1 of DualPipe-V stage ``2 * ranks - 1 - rank``. The n-th forward
    of a stage is microbatch n. A backward is that of the forward in the same buffer, in whatever order they
    come. Weight gradients follow the input gradients first in, first out. ``without`` are kinds that do
    nothing on this rank.
    """
    mirrored = 2 * pipe_schedule.stages - 1 - rank
    order = [one for one in _number(pipe_schedule, rank, mirrored) if one.kind not in without]
    return tuple(_in_turn(order))


def unknown_of(pipe_schedule: PipeSchedule) -> tuple[str, ...]:
    """Return the names of unknown instructions, in the order of their first turn."""
    names = dict.fromkeys(type(command).__name__ for command in commands(pipe_schedule))
    return tuple(name for name in names if name not in KINDS)


def _in_turn(order: Collection[Instruction]) -> Iterator[Instruction]:
    """Number transfers by their turn where there are more of them than forwards: some come twice."""
    counts = Counter((one.stage, one.kind) for one in order)
    turns: defaultdict[tuple[int, Kind], count[int]] = defaultdict(count)
    for one in order:
        repeated = one.kind.is_transfer and counts[one.stage, one.kind] > counts[one.stage, Kind.FORWARD]
        yield replace(one, microbatch=next(turns[one.stage, one.kind])) if repeated else one


def _number(pipe_schedule: PipeSchedule, rank: int, mirrored: int) -> Iterator[Instruction]:
    turns: Counter[tuple[int, Kind]] = Counter()
    held: dict[tuple[int, object], int] = {}
    weights: defaultdict[int, deque[int]] = defaultdict(deque)
    for command in commands(pipe_schedule):
        kind = KINDS.get(type(command).__name__, Kind.UNKNOWN)
        stage = mirrored if kind in _OF_A_STAGE and getattr(command, "phase", 0) == 1 else rank
        buffer = (stage, getattr(command, "buffer_id", None))
        number = turns[stage, kind]
        turns[stage, kind] += 1
        if kind is Kind.FORWARD:
            held[buffer] = number
        elif kind in _OF_THE_BUFFER:
            number = held.get(buffer, number)
        elif kind is Kind.BACKWARD_WEIGHT and weights[stage]:
            number = weights[stage].popleft()
        if kind is Kind.BACKWARD_INPUT:
            weights[stage].append(number)
        yield Instruction(stage, kind, number)


NEXT_BATCH = "_next_batch"
"""The method that takes a microbatch from the data iterator; without it shapes alone are counted."""


def _load_of_shape(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Load | None:
    """Count a forward's first input, which lies in its buffer by now.

    Where tensor-parallel peers share the work of sending, the first of what was received is its description
    and the second this rank's part. None where the engine keeps its inputs elsewhere.
    """
    holder: PipelineEngine = args[0]
    try:
        inputs = holder.pipe_buffers["inputs"][kwargs.get("buffer_id")]
        if not isinstance(inputs, tuple):
            return Load.of_shape(inputs.shape)
        described = holder.is_pipe_partitioned and not holder.is_first_stage()
        return Load.of_shape(inputs[1 if described else 0].shape)
    except Exception:  # noqa: BLE001  # an engine may keep anything there
        return None


_EVERY = 10  # DeepSpeed's own default for steps_per_print


class EngineAdapter(HookedAdapter):
    """Members of an adapter that every engine of DeepSpeed has alike; no class, no module is touched."""

    def __init__(self, engine: HostEngine, present: PipeSchedule = None) -> None:
        super().__init__(present)
        self._engine = engine

    @property
    def device(self) -> torch.device:
        return torch.device(getattr(self._engine, "device", "cpu"))

    def skipped_steps(self) -> int:
        """Return how many optimizer steps this engine has skipped so far, since fp16 gradients overflowed."""
        skipped = getattr(self._engine, "skipped_steps", 0)
        return skipped if isinstance(skipped, int) else 0

    @property
    def scalars_every(self) -> int | None:
        """DeepSpeed's ``steps_per_print``; None where no monitor is on, or on another rank than 0."""
        monitor = getattr(self._engine, "monitor", None)
        if self._engine.global_rank != 0 or monitor is None or not monitor.enabled:
            return None
        ask = getattr(self._engine, "steps_per_print", None)
        steps = ask() if callable(ask) else None
        return steps if isinstance(steps, int) and steps > 0 else _EVERY

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Write ``Perseus/...`` beside ``Train/Samples/...``, over the same number of samples."""
        samples = int(getattr(self._engine, "global_samples", 0))
        self._engine.monitor.write_events(
            [(f"Perseus/{name}", value, samples) for name, value in scalars.items()]
        )


def coupled_by_experts(module: torch.nn.Module) -> tuple[int, ...]:
    """Return the ranks that this one exchanges tokens with in layers of experts; none where all are here.

    ``MOELayer`` and ``AutoEPMoELayer`` carry their group; layers may spread over groups of several sizes.

    Source: ``_set_ep_group`` in deepspeed/moe/sharded_moe.py@0.19.8.
    """
    groups = (getattr(one, "ep_group", None) for one in module.modules())
    found = {rank for group in groups if group is not None for rank in dist.get_process_group_ranks(group)}
    return tuple(sorted(found)) if len(found) > 1 else ()


class DeepSpeedAdapter(EngineAdapter):
    """A `PipelineEngine`, and the schedule object of its first training batch on this rank.

    All that hooks replace the engine looks up through ``self``, in DeepSpeed from 0.12.6 to 0.19.8.
    """

    name = "deepspeed"
    sync_point = SyncPoint.REDUCTION
    adjoining = True
    """Nothing is computed between two instructions (``PipelineEngine._exec_schedule``, 0.12.6 to 0.19.8)."""

    def __init__(self, engine: PipelineEngine, pipe_schedule: PipeSchedule) -> None:
        super().__init__(engine, pipe_schedule)
        self._module = cast("torch.nn.Module", vars(engine)["_modules"]["module"])
        self._silent = frozenset() if getattr(self._module, "tied_comms", None) else {Kind.REDUCE_TIED}
        self._loaded: list[Load | None] = []
        self._ahead: ReadAhead | None = None
        self._is_first = self._reads_ahead = False

    def place(self) -> Place:
        """Read stage, replica and this rank's own stream."""
        check(self._engine)
        rank = self._engine.stage_id
        chunks = chunks_of(self._module, rank=rank, ranks=self._engine.num_stages)
        return Place(
            pipeline_rank=rank,
            replica=self._engine.grid.get_data_parallel_rank(),
            order=order_of(self.present, rank, without=self._silent),
            parameters={stage: parameters for stage, (parameters, _) in chunks.items()},
            weights={stage: weight for stage, (_, weight) in chunks.items()},
            dtypes=dtypes_of(self._module.parameters()),
            unknown=unknown_of(self.present),
            modules=describe_modules([self._module], device_type=self.device.type),
            untested=deepspeed_release().untested,
            coupled=coupled_by_experts(self._module),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        return join_orders(places, name=f"deepspeed.{type(self.present).__name__}")

    def traits(self) -> Mapping[str, str]:
        return {
            "tensor_parallel": str(self._engine.grid.model_parallel_size),
            "micro_batch_size": str(self._engine.micro_batch_size),
            "deepspeed": deepspeed_version(),
        }

    def read_ahead(self) -> bool:
        """Count the microbatches of an iteration before it begins, on the first stage."""
        self._reads_ahead = True
        return True

    def _hook(self) -> None:
        engine = self._engine
        exec_schedule, handlers = engine._exec_schedule, engine._INSTRUCTION_MAP  # noqa: SLF001
        if is_ours(exec_schedule):
            raise EngineError("perseus_ds is installed on this engine already")
        ours = {command: self._around(command.__name__, handler) for command, handler in handlers.items()}
        self._replace(engine, "_INSTRUCTION_MAP", ours)
        next_batch = getattr(engine, NEXT_BATCH, None)
        if next_batch is not None:
            self._replace(engine, NEXT_BATCH, self._around_next_batch(next_batch))
        self._replace(engine, "_exec_schedule", self._around_schedule(exec_schedule))

    def _around(self, command: str, handler: Handler) -> Handler:
        kind = KINDS.get(command, Kind.UNKNOWN)
        if kind in self._silent:
            return handler
        return self._announce(kind, handler, load=self._load_of if kind is Kind.FORWARD else None)

    def _around_next_batch(self, next_batch: Handler) -> Handler:
        @wraps(next_batch)
        def count_batch(*args: object, **kwargs: object) -> object:
            batch = next_batch(*args, **kwargs)
            self._do(partial(self._count, batch), None)
            return batch

        return mark_as_ours(count_batch)

    def _count(self, batch: object) -> None:
        """Count a microbatch of the first stage as it leaves the data iterator, still on the host.

        What a later stage receives is known by its shape alone.

        Source: ``_exec_load_micro_batch``, ``_next_batch``, ``_exec_forward_pass``, deepspeed@0.19.8.
        """
        inputs = batch[0] if isinstance(batch, tuple | list) and len(batch) else batch
        self._loaded.append(count_load(inputs))

    def _load_of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Load | None:
        """Return the load of a forward that is about to be issued."""
        if self._loaded and self._is_first:
            return self._loaded.pop(0)
        return _load_of_shape(args, kwargs)

    def _around_schedule(self, exec_schedule: Callable[[PipeSchedule], None]) -> Handler:
        @wraps(exec_schedule)
        def around_schedule(pipe_schedule: PipeSchedule) -> None:
            try:
                self._run(
                    partial(exec_schedule, pipe_schedule),
                    trains=partial(is_training, pipe_schedule),
                    batch=partial(self._batch_of, pipe_schedule),
                )
            finally:
                if self._ahead is not None:
                    self._stop_reading(self._ahead)

        return mark_as_ours(around_schedule)

    def _batch_of(self, pipe_schedule: PipeSchedule) -> Batch:
        """Begin a training iteration, whose loads are read ahead where this rank has the data.

        Within the iteration alone the engine's data iterator is another one.
        """
        engine, microbatches, loads = self._engine, pipe_schedule.micro_batches, None
        self.present = pipe_schedule
        self._loaded.clear()
        ask, data = getattr(engine, "is_first_stage", None), getattr(engine, "data_iterator", None)
        self._is_first = callable(ask) and bool(ask())
        if self._reads_ahead and data is not None and self._is_first:
            if self._ahead is None or not self._ahead.reads(data):
                self._ahead = ReadAhead(data)
            engine.data_iterator = self._ahead
            loads = self._ahead.loads(microbatches)
        return Batch(microbatches, loads=loads)

    def _stop_reading(self, ahead: ReadAhead) -> None:
        """Give the engine its own iterator back, unless microbatches that were read are left."""
        if ahead.is_empty:
            self._ahead = None
            if self._engine.data_iterator is ahead:
                self._engine.data_iterator = ahead.data


def chunks_of(module: object, *, rank: int, ranks: int) -> Mapping[int, tuple[int, float]]:
    """Return parameters, and weights that multiply, of each model stage on this rank.

    That is stage ``rank``, and with DualPipe-V its mirror ``2 * ranks - 1 - rank`` as well. A layer that two
    stages share counts in both.

    Source: ``PipelineModule.forward_funcs``, ``DualPipeVModule.phase_funcs``, deepspeed@0.19.8.
    """
    phases = cast("list[list[object]] | None", getattr(module, "phase_funcs", None))
    if phases is not None:
        first, second = phases
        mirror = 2 * ranks - 1 - rank
        return {rank: (_count(first), weight_of(first)), mirror: (_count(second), weight_of(second))}
    layers = getattr(module, "forward_funcs", None)
    return {rank: (_count([module]), weight_of([module] if layers is None else layers))}


def weight_of(layers: Iterable[object]) -> float:
    """Count the weights that multiply in some layers.

    An embedding counts only where a tied layer brings its own forward function
    (``TiedLayerSpec(forward_fn=...)``: the language-model head). What is neither module nor tied layer weighs
    nothing.
    """
    return float(
        sum(
            matmul_weight(part, embeddings=isinstance(layer, partial))
            for layer in layers
            for part in _modules(layer)
        )
    )


def _count(layers: Iterable[object]) -> int:
    modules = [part for layer in layers for part in _modules(layer)]
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def _modules(layer: object) -> list[torch.nn.Module]:
    parts = layer.args if isinstance(layer, partial) else (layer,)
    return [part for part in parts if isinstance(part, torch.nn.Module)]
