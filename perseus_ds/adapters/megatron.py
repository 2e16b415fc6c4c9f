"""Models that train in megatron-core's schedules: functions of its module, wrapped while a pass trains."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, wraps
from types import ModuleType
from typing import Any, Self, cast

import torch
import torch.distributed as dist
from torch import nn

from perseus_ds.adapters.base import (
    HookedAdapter,
    Release,
    block_in_code,
    dtypes_of,
    is_requested,
    mark_as_ours,
)
from perseus_ds.adapters.input_size import ReadAhead
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, Place, SyncPoint
from perseus_ds.runtime.attach import say
from perseus_ds.runtime.place import describe_modules, join_orders, matmul_weight
from perseus_ds.schedule import (
    Instruction,
    Kind,
    Load,
    Order,
    Schedule,
    first_forwards,
    last_backwards,
    textbook,
    with_rendezvous,
)

# All that we rely on in megatron-core: names of one module, checked before use, and what we cannot serve.

MODULE = "megatron.core.pipeline_parallel.schedules"

TESTED_MEGATRON = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1")
"""Releases on which `scripts/versions` runs a whole job."""

INTERLEAVED = "forward_backward_pipelining_with_interleaving"
PASSES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_without_interleaving",
    INTERLEAVED,
)
"""Functions that run one iteration, called with keywords alone."""

STEPS = {"forward_step": Kind.FORWARD, "backward_step": Kind.BACKWARD}
"""Functions that they call for every microbatch, looked up by name at each call."""

COMBINED_MODULE = "megatron.core.pipeline_parallel.combined_1f1b"
COMBINED_STEP = "combined_forward_backward_step"
"""Function that runs a forward, a backward, or both at once, where experts' communication is to be hidden."""

GRAPH_MODULE = "megatron.core.full_cuda_graph"
GRAPH_CLASS = "FullCudaGraphWrapper"
"""Class whose instances run a pass, capture one in a graph, and replay that from then on."""

_COMBINED_NAMES = {COMBINED_STEP: "running around forwards and backwards at once"}
_COMBINED_ARGUMENTS = {"f_model", "b_model", "pre_forward", "pre_backward"}

Function = Callable[..., object]

PASS_NAMES = dict.fromkeys(PASSES, "knowing when an iteration starts and ends")
REQUIRED_NAMES = {
    **PASS_NAMES,
    **dict.fromkeys(STEPS, "running around every instruction"),
    "get_schedule_table": "checking the order of an interleaved pipeline",
    "get_model_config": "knowing what cannot be served",
    "parallel_state.get_pipeline_model_parallel_rank": "knowing this rank's place",
    "parallel_state.get_pipeline_model_parallel_world_size": "the pipeline's depth",
    "parallel_state.get_data_parallel_rank": "knowing the replica",
    "parallel_state.get_tensor_model_parallel_world_size": "recognising the job",
    "parallel_state.get_context_parallel_world_size": "recognising the job",
    "parallel_state.get_expert_model_parallel_world_size": "knowing who waits for whom",
    "parallel_state.get_expert_tensor_and_model_parallel_group": "knowing who waits for whom",
}
"""Every name relied on, and what for; the same in all releases tested, and in 0.17 to 0.20 as far as read."""

_MULTIMODULE = {"MultiModuleProcessGroupCollection", "MultiModulePipelineCommunicator"}
"""Classes that a pass is called with where encoders and the language model have pipelines of their own.

Source: ``forward_backward_pipelining_without_interleaving`` of megatron-core 0.17 and later.
"""


def megatron_version() -> str:
    """The release that is imported; its package reports it itself."""
    return str(getattr(sys.modules.get("megatron.core"), "__version__", "of no known release"))


def check(module: ModuleType) -> None:
    """Return if everything that we rely on is there.

    Raises:
        EngineError: naming what is missing, the release found and those tested.
    """
    release().check(module, REQUIRED_NAMES, where=MODULE)
    if "current_microbatch" not in inspect.signature(module.forward_step).parameters:
        raise EngineError(
            f"{MODULE} is not megatron-core's own: its forward_step has no current_microbatch",
            hint="Megatron-DeepSpeed is served through DeepSpeed's engine: start it with --deepspeed",
        )


def check_combined() -> ModuleType:
    """Return the module that runs forwards and backwards at once, if all that we rely on is there.

    Raises:
        EngineError: naming what is missing, the release found and those tested.
    """
    module = cast("ModuleType", sys.modules.get(COMBINED_MODULE))
    release().check(module, _COMBINED_NAMES, where=COMBINED_MODULE)
    missing = _COMBINED_ARGUMENTS - set(inspect.signature(getattr(module, COMBINED_STEP)).parameters)
    if missing:
        raise release().refusal(f"{COMBINED_STEP} has no {' and no '.join(sorted(missing))}")
    return module


def release() -> Release:
    """Return the release that is imported, with those tested."""
    return Release("megatron-core", megatron_version(), TESTED_MEGATRON)


def refuse_unsupported(config: object, keywords: Mapping[str, object]) -> None:
    """Return if a job of this configuration, called with these keywords, runs what its order states.

    Raises:
        EngineError: with the reason.
    """
    if getattr(config, "hybrid_context_parallel", False):
        reason = (
            "hybrid_context_parallel cannot be served: every pass deals its samples anew, so that ranks run "
            "other numbers of computations in every iteration, unknown until it has begun"
        )
    elif _MULTIMODULE & {type(thing).__name__ for thing in keywords.values()}:
        reason = (
            "a pipeline of several modules cannot be served: each has stages of its own, and backwards run "
            "in backward_step_multimodule, past the functions that perseus_ds listens to"
        )
    else:
        return
    raise EngineError(reason, hint="train without it, or without us")


def is_one_graph(config: object) -> bool:
    """Tell if one graph holds the iteration; the scope is a name in 0.14 and 0.15, enumerators from 0.16."""
    scope = getattr(config, "cuda_graph_scope", None) or ()
    scopes = [scope] if isinstance(scope, str) or not isinstance(scope, Sequence) else scope
    names = {getattr(one, "name", one) for one in scopes}
    implementation = getattr(config, "cuda_graph_impl", None)
    captures = implementation == "local" or getattr(config, "enable_cuda_graph", False)
    return implementation == "full_iteration" or (bool(captures) and "full_iteration" in names)


def serves(host: object) -> bool:
    """Return whether this is megatron-core's module of schedules."""
    return isinstance(host, ModuleType) and host.__name__ == MODULE


def attach(module: ModuleType, *, config: Mapping[str, object] | None = None) -> None:
    """Serve the first model that trains in this module, from its first training pass on, if it is asked for.

    ``config`` is a block given in code; without it ``PERSEUS_CONFIG`` states. Calling it again does nothing.
    What goes wrong is one line in the log and training at default clocks, unless the block has ``"on_error":
    "raise"``.
    """
    if not is_requested(config):
        return
    from perseus_ds.runtime.attach import activate, decline  # noqa: PLC0415

    block = block_in_code(config)
    try:
        release().check(module, PASS_NAMES, where=MODULE)
    except Exception as error:  # noqa: BLE001  # the host wins
        decline(error, block)
        return
    if any(wrappings_of(module)):
        return

    def first(present: OnePass, call: Callable[[], object]) -> object:
        if not present.trains:
            return call()
        if present.awaits_graph:
            if not waiting.told:
                waiting.told = True
                say("one CUDA graph is to hold an iteration: served from its first replay on")
            waiting.wrap_graphs()
            return call()
        waiting.remove()
        activate(module, partial(MegatronAdapter, present), block=block)
        run = cast("Function", present.graph or getattr(module, present.name))
        return run(**present.keywords)

    waiting = Wrapping(module, first)


watch = attach  # the module is its own host, right after its import


def detach(module: ModuleType) -> None:
    """Restore the module's own functions and the GPU's own clocks."""
    from perseus_ds.runtime.attach import deactivate  # noqa: PLC0415

    deactivate(module)
    for waiting in wrappings_of(module):
        waiting.remove()


# One call of a function that runs a pass: whose model, how many microbatches, of what shape.


@dataclass(frozen=True, slots=True)
class OnePass:
    """The keywords of a call; all releases take them under these names.

    ``graph`` is what captures and replays it, where one graph holds the iteration.
    """

    module: ModuleType
    name: str
    keywords: Mapping[str, object]
    graph: object = None

    @property
    def trains(self) -> bool:
        return not self.keywords.get("forward_only", False)

    @property
    def awaits_graph(self) -> bool:
        """True until it is a replay, where it is to be one: warm-up and capture are no iteration of ours."""
        graphs = getattr(self.graph, "cuda_graph", None)
        captured = isinstance(graphs, Mapping) and graphs.get("training") is not None
        return not captured and is_one_graph(self.config)

    @property
    def chunks(self) -> list[nn.Module]:
        model = self.keywords.get("model")
        return list(model) if isinstance(model, list) else [cast("nn.Module", model)]

    @property
    def interleaved(self) -> bool:
        return self.name == INTERLEAVED

    @property
    def combined(self) -> bool:
        """True if forwards run at once with backwards; without interleaving Megatron never does that."""
        flag = getattr(self.config, "overlap_moe_expert_parallel_comm", False)
        return bool(flag) and self.name != PASSES[1]

    @property
    def config(self) -> object:
        return self.module.get_model_config(self.chunks[0])

    @property
    def batch(self) -> Batch:
        """Properties of the batch that a plan must fit."""
        sizes = [self.keywords.get(name) for name in ("micro_batch_size", "seq_length", "decoder_seq_length")]
        shape = " x ".join(str(size) for size in sizes if size is not None)
        return Batch(cast("int", self.keywords.get("num_microbatches")), shape)

    @property
    def load(self) -> Load | None:
        """Return the load of a microbatch, as the call informs it: so many sequences of one length."""
        sizes = [self.keywords.get(name) for name in ("micro_batch_size", "seq_length")]
        known = [size for size in sizes if isinstance(size, int)]
        return Load.of_shape(known) if len(known) == len(sizes) else None

    def place(self) -> tuple[int, int, int]:
        """Return pipeline rank, pipeline ranks and replica: by the call's groups, else by Megatron's own."""
        state, groups = self.module.parallel_state, self.keywords.get("pg_collection")
        pipeline, data = getattr(groups, "pp", None), getattr(groups, "dp", None)
        return (
            pipeline.rank() if pipeline else state.get_pipeline_model_parallel_rank(),
            pipeline.size() if pipeline else state.get_pipeline_model_parallel_world_size(),
            data.rank() if data else state.get_data_parallel_rank(),
        )

    @property
    def coupled(self) -> tuple[int, ...]:
        """The ranks that exchange tokens with this one in MoE layers; none without expert parallelism."""
        state, groups = self.module.parallel_state, self.keywords.get("pg_collection")
        if state.get_expert_model_parallel_world_size() == 1:
            return ()
        experts = getattr(groups, "tp_ep", None) or state.get_expert_tensor_and_model_parallel_group()
        return tuple(dist.get_process_group_ranks(experts))


# Megatron's instruction orders in our words; pure.


def order_of(
    rank: int,
    *,
    ranks: int,
    microbatches: int,
    chunks: int = 1,
    group: int | None = None,
    combined: bool = False,
    reduces: bool,
) -> Order:
    """Return the order of one pipeline rank: 1F1B, or interleaved 1F1B where it holds several chunks.

    With ``combined`` forwards and backwards of the steady state run at once.
    Chunk c of a rank is model stage ``c * ranks + rank``. The reduction is one instruction of the rank, where
    its model ``reduces``, and the step is what lies between two passes.
    """
    name = "interleaved-fb" if combined else "interleaved" if chunks > 1 else "1f1b"
    book = textbook(name, stages=ranks * chunks, microbatches=microbatches, chunks=chunks, group=group)
    tail = (Kind.REDUCE_GRADS, Kind.STEP) if reduces else (Kind.STEP,)
    return (*book.orders[rank], *(Instruction(rank, kind, 0) for kind in tail))


def check_table(table: Sequence[tuple[int, int]], order: Order, *, ranks: int, chunks: int) -> None:
    """Compare our passes with Megatron's own table of (microbatch, chunk).

    Raises:
        EngineError: this release runs another order.
    """
    parts = [part for instruction in order for part in instruction.parts]
    forwards = [(i.microbatch, i.stage // ranks) for i in parts if i.kind is Kind.FORWARD]
    backwards = [(i.microbatch, chunks - 1 - i.stage // ranks) for i in parts if i.kind is Kind.BACKWARD]
    if not forwards == backwards == [tuple(row) for row in table]:
        raise EngineError(
            "get_schedule_table of this megatron-core gives another interleaved order than ours",
            hint="train without virtual pipeline stages, or without perseus_ds",
        )


def left_out_of(order: Order, reducing: Iterable[object]) -> frozenset[Instruction]:
    """Return what waits for other replicas: forwards that wait for parameters, backwards that reduce.

    ``reducing`` are Megatron's data-parallel modules, whose ``ddp_config`` states what they overlap.
    """
    overlaps = [getattr(one, "ddp_config", None) for one in reducing]
    gathers = any(getattr(one, "overlap_param_gather", False) for one in overlaps)
    reduces = any(getattr(one, "overlap_grad_reduce", False) for one in overlaps)
    return frozenset(
        (first_forwards(order) if gathers else frozenset())
        | (last_backwards(order) if reduces else frozenset())
    )


# The functions that run a pass, wrapped until further notice.

Around = Callable[[OnePass, Callable[[], object]], object]

_WRAPPING = "__perseus_wrapping__"


class Wrapping:
    """Have ``around(pass, call)`` run every pass of a module, also those that a graph replays.

    ``model`` is whose passes it is for. Several may stand around each other, with other people's wrappers
    among them, and are removed in any order. Jobs keep the function that they once asked for: a removed
    wrapper calls the one that serves now.
    """

    def __init__(self, module: ModuleType, around: Around, *, model: object = None) -> None:
        self.model = model
        self.removed = self.told = False
        self._module = module
        self._around = around
        self._inside = False
        self._places: list[tuple[object, str]] = []
        for name in PASSES:
            self._wrap(module, name)
        self.wrap_graphs()

    def wrap_graphs(self) -> None:
        """Stand around what replays passes as well, once it is imported; safe to call twice."""
        graphs = getattr(sys.modules.get(GRAPH_MODULE), GRAPH_CLASS, None)
        if graphs is not None and (graphs, "__call__") not in self._places:
            self._wrap(graphs, "__call__")

    def remove(self) -> None:
        """Put the module's own functions back, as far as nobody else stands around us; safe to call twice."""
        self.removed = True
        for holder, name in self._places:
            function = getattr(holder, name)
            while (ours := _ours(function)) is not None and ours.removed:
                function = function.__wrapped__
            setattr(holder, name, function)

    def _wrap(self, holder: object, name: str) -> None:
        original: Function = getattr(holder, name)

        @wraps(original)
        def around_pass(*args: object, **kwargs: object) -> object:
            if self._inside:
                return original(*args, **kwargs)
            self._inside = True
            try:
                if self.removed:
                    there = getattr(holder, name)
                    serving = _ours(there)
                    waits = serving is not None and not serving._inside  # noqa: SLF001  # one of our own
                    return (there if waits else original)(*args, **kwargs)
                graph = args[0] if args and holder is not self._module else None
                runs = name if graph is None else _name_of(getattr(graph, "forward_backward_func", None))
                present = OnePass(self._module, runs, kwargs, graph)
                return self._around(present, lambda: original(*args, **kwargs))
            finally:
                self._inside = False

        vars(around_pass)[_WRAPPING] = self, around_pass
        self._places.append((holder, name))
        setattr(holder, name, around_pass)


def wrappings_of(module: ModuleType) -> Iterator[Wrapping]:
    """Yield what stands around a module's passes and is not removed, outermost first."""
    function: object = getattr(module, PASSES[0])
    while function is not None:
        if (ours := _ours(function)) is not None and not ours.removed:
            yield ours
        function = getattr(function, "__wrapped__", None)


def _name_of(function: object) -> str:
    return str(getattr(function, "__name__", ""))


def _ours(function: object) -> Wrapping | None:
    """Return whose wrapper this is; one of somebody else's may have copied its attributes."""
    wrapping, passing = getattr(function, _WRAPPING, (None, None))
    return wrapping if passing is function else None


# A model that trains in megatron-core's schedules: its module's globals are kept, called and restored.

_DATA = "data_iterator"
_SYNC = "finish_grad_sync"
"""Name by which Megatron's data-parallel modules are known: replicas wait for each other in it."""


def _then(wait: Function, act: Callable[[], None]) -> Function:

    @wraps(wait)
    def around_wait(*args: object, **kwargs: object) -> object:
        result = wait(*args, **kwargs)
        act()
        return result

    return around_wait


def reducing_modules(chunks: list[nn.Module]) -> list[nn.Module]:
    """Find what reduces each chunk's gradients: the chunk itself, or a module inside (NeMo nests them)."""
    found = (next((m for m in chunk.modules() if hasattr(m, _SYNC)), None) for chunk in chunks)
    return [one for one in found if one is not None]


_SCRIPT = "megatron.training.global_vars"
_NAMES = {"rank0_energy_per_iteration_j": "iter-energy/gpu", "rank0_power_w": "power/gpu"}
_PLAIN = (bool, int, float, str, torch.dtype)


@dataclass(frozen=True, slots=True)
class Writers:
    """Megatron-LM's own TensorBoard and Weights & Biases writers, where its training script runs.

    The script makes them on the last rank; ``every`` is how often they are written to.

    Source: megatron/training/{global_vars,training}.py @ core_r0.16.0, which names both scalars.
    """

    arguments: Any
    board: Any
    log: Any

    @classmethod
    def find(cls) -> Self | None:
        """Look for them; None where there are none, or Megatron's energy monitor writes (--log-energy)."""
        script = sys.modules.get(_SCRIPT)
        names = "get_args", "get_tensorboard_writer", "get_wandb_writer"
        try:
            found = cls(*(getattr(script, name)() for name in names))
        except (AttributeError, AssertionError):  # another release's names end nothing
            return None
        is_none = found.board is None and found.log is None
        return None if is_none or getattr(found.arguments, "log_energy", False) else found

    @property
    def every(self) -> int:
        return int(getattr(self.arguments, "tensorboard_log_interval", None) or 1)

    def write(self, scalars: Mapping[str, float]) -> None:
        """Write this rank's energy and power, under Megatron's names."""
        values = {name: scalars[ours] for ours, name in _NAMES.items() if ours in scalars}
        iteration = int(getattr(self.arguments, "curr_iteration", 0) or 0)
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, iteration)
        if self.log is not None and values:
            self.log.log(values, iteration)


class MegatronAdapter(HookedAdapter):
    """The model chunks of this rank, and the first training pass over them.

    The three functions that run a pass stay wrapped, in a module that other models may train in as well.
    Those that run a microbatch, and each chunk's ``finish_grad_sync``, are wrapped within a wanted pass of
    this model alone, which looks them up at every call: evaluations and other models run Megatron's own.
    """

    name = "megatron"

    def __init__(self, first: OnePass) -> None:
        super().__init__(first)
        self._first = first
        self._reducing = reducing_modules(first.chunks)
        self._wrapping: Wrapping | None = None
        self._load: Load | None = None
        self._warned = self._reads_ahead = False
        self._ahead: ReadAhead | None = None
        self._writers = Writers.find()

    @property
    def sync_point(self) -> SyncPoint:
        """The reduction; none where nothing of Megatron's reduces, or FSDP gathers parameters in forwards."""
        sharded = any("fsdp" in type(one).__name__.lower() for one in self._reducing)
        return SyncPoint.REDUCTION if self._reducing and not sharded else SyncPoint.UNMARKED

    @property
    def device(self) -> torch.device:
        return next(self._first.chunks[0].parameters()).device

    def place(self) -> Place:
        """Read stage and replica, and derive this rank's order."""
        check(self._first.module)
        refuse_unsupported(self._first.config, self._first.keywords)
        if self._first.combined:
            check_combined()
        rank, ranks, replica = self._first.place()
        chunks = {number * ranks + rank: chunk for number, chunk in enumerate(self._first.chunks)}
        order = self._order(rank, ranks, self.present.batch.microbatches)
        return Place(
            pipeline_rank=rank,
            replica=replica,
            order=order,
            parameters={stage: sum(p.numel() for p in one.parameters()) for stage, one in chunks.items()},
            weights={stage: float(matmul_weight(one)) for stage, one in chunks.items()},
            dtypes=dtypes_of(p for chunk in chunks.values() for p in chunk.parameters()),
            left_out=left_out_of(order, self._reducing),
            modules=describe_modules(self._first.chunks, device_type=self.device.type),
            untested=release().untested,
            coupled=self._first.coupled,
            replayed=is_one_graph(self._first.config),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Join the orders of all pipeline ranks; in 1F1B both ends of a transfer wait for each other."""
        name = f"megatron.{self._first.name.removeprefix('forward_backward_')}"
        schedule = join_orders(places, name=name)
        return schedule if self._first.interleaved else with_rendezvous(schedule)

    def traits(self) -> Mapping[str, str]:
        state = self._first.module.parallel_state
        experts = state.get_expert_model_parallel_world_size()
        return {
            "tensor_parallel": str(state.get_tensor_model_parallel_world_size()),
            "context_parallel": str(state.get_context_parallel_world_size()),
            **({"expert_parallel": str(experts)} if experts > 1 else {}),
            "microbatch": self._first.batch.shape,
            "transformer": " ".join(sorted(_set_by_user(self._first.config))),
            "megatron": megatron_version(),
        }

    def read_ahead(self) -> bool:
        self._reads_ahead = True
        return True

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        if self._writers is not None:
            self._writers.write(scalars)

    @property
    def scalars_every(self) -> int | None:
        """Interval at which the script writes its own; None on ranks without a writer."""
        return None if self._writers is None else self._writers.every

    def _order(self, rank: int, ranks: int, microbatches: int) -> Order:
        first = self._first
        chunks, group = len(first.chunks), None
        if first.interleaved:
            group = getattr(first.config, "microbatch_group_size_per_vp_stage", None) or ranks
        order = order_of(
            rank,
            ranks=ranks,
            microbatches=microbatches,
            chunks=chunks,
            group=group,
            combined=first.combined,
            reduces=bool(self._reducing),
        )
        if group is not None:
            table = first.module.get_schedule_table(microbatches, chunks, group)
            check_table(table, order, ranks=ranks, chunks=chunks)
        return order

    def remove(self) -> None:
        """Restore the module; safe to call twice, also from within a pass."""
        super().remove()
        if self._wrapping is not None:
            self._wrapping.remove()
            self._wrapping = None

    def _hook(self) -> None:
        module, model = self._first.module, self._first.chunks[0]
        if any(other.model is model for other in wrappings_of(module)):
            raise EngineError("perseus_ds is installed on this model already")
        self._wrapping = Wrapping(module, self._around_pass, model=model)

    def _around_pass(self, present: OnePass, call: Callable[[], object]) -> object:
        try:
            return self._run(
                call,
                trains=partial(self._is_ours, present),
                batch=partial(self._batch_of, present),
                prepare=self._listen,
            )
        finally:
            self._restore()

    def _is_ours(self, present: OnePass) -> bool:
        """Return whether a pass trains the first model of this process, the only one that is served."""
        if not present.trains or present.awaits_graph:
            return False
        if present.chunks[0] is self._first.chunks[0]:
            return True
        if not self._warned:
            self._warned = True
            say("a second model trains in this process: it runs at default clocks; the first one is served")
        return False

    def _batch_of(self, present: OnePass) -> Batch:
        self.present, self._load = present, present.load
        return replace(present.batch, loads=self._read_ahead(present))

    def _read_ahead(self, present: OnePass) -> tuple[Load, ...] | None:
        """Count the microbatches of a pass before it, where this rank is the first stage and has them."""
        data = present.keywords.get(_DATA)
        if not self._reads_ahead or not hasattr(data, "__next__") or present.place()[0] > 0:
            return None
        if self._ahead is None or not self._ahead.reads(data):
            self._ahead = ReadAhead(cast("Iterator[object]", data))
        cast("dict[str, object]", present.keywords)[_DATA] = self._ahead  # the call is made with them
        return self._ahead.loads(present.batch.microbatches)

    def _listen(self) -> None:
        module = self._first.module
        for name, kind in STEPS.items():
            load = self._load_of if kind is Kind.FORWARD else None
            self._replace(module, name, self._announce(kind, getattr(module, name), load=load))
        if self.present.combined:
            combined = check_combined()
            self._replace(combined, COMBINED_STEP, self._around_combined(getattr(combined, COMBINED_STEP)))
        for chunk in self._reducing:
            first, last = chunk is self._reducing[0], chunk is self._reducing[-1]
            original = cast("Function", getattr(chunk, _SYNC))
            ours = self._announce(Kind.REDUCE_GRADS, original, begins=first, ends=last)
            self._replace(chunk, _SYNC, ours)

    def _around_combined(self, step: Function) -> Function:
        """Announce a forward, a backward, or both at once, as soon as the call has waited for its inputs."""
        signature = inspect.signature(step)

        @wraps(step)
        def announce(*args: object, **kwargs: object) -> object:
            if not self.wanted:
                return step(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments
            forward, backward = given.get("f_model") is not None, given.get("b_model") is not None
            kind = (
                Kind.FORWARD_BACKWARD if forward and backward else Kind.FORWARD if forward else Kind.BACKWARD
            )
            begin = partial(self._before, kind, self._load_of if forward else None)
            waits = [name for name, runs in (("pre_backward", backward), ("pre_forward", forward)) if runs]
            last = next((name for name in waits if given.get(name) is not None), None)
            if last is None:
                begin()
            else:
                given[last] = _then(cast("Function", given[last]), begin)
            result = step(*bound.args, **bound.kwargs)
            self._after(kind)
            return result

        return mark_as_ours(announce)

    def _load_of(self, *_: object) -> Load | None:
        return self._load


def _set_by_user(config: object) -> list[str]:
    """Every plain setting that is not at its default: what the model's time depends on, and little more."""
    if not is_dataclass(config):
        return []
    settings = {field.name: getattr(config, field.name, None) for field in fields(config)}
    defaults = {field.name: field.default for field in fields(config)}
    return [f"{n}={v}" for n, v in settings.items() if isinstance(v, _PLAIN) and v != defaults[n]]
