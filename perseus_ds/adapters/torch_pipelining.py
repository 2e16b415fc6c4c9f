"""Schedules of torch.distributed.pipelining: hooked on the instances of a schedule and its stages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from perseus_ds.adapters.base import (
    HookedAdapter,
    Release,
    block_in_code,
    detach_host,
    dtypes_of,
    is_ours,
    is_requested,
    mark_as_ours,
    on_construction,
    on_first_call,
)
from perseus_ds.adapters.input_size import count_chunks
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, Place, SyncPoint
from perseus_ds.runtime.place import describe_modules, join_orders, matmul_weight
from perseus_ds.schedule import Instruction, Kind, Order, Schedule, first_forwards, last_backwards, textbook


def watch(module: ModuleType) -> None:
    """Look at every schedule after it is built; called once torch's schedules are there."""
    on_construction(module._PipelineSchedule, attach)  # noqa: SLF001  # the seam: the base of all of them


def serves(host: object) -> bool:
    """Return whether this is a schedule of torch.distributed.pipelining's."""
    return any(kind.__name__ == "_PipelineSchedule" for kind in type(host).__mro__)


def attach(schedule: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this schedule from its first training step on.

    ``config`` is a block given in code; without it ``PERSEUS_CONFIG`` states. Waiting until then lets
    subclasses write their orders down. Calling it again does nothing. What goes wrong is one line in the log
    and training at default clocks, unless the block has ``"on_error": "raise"``.
    """
    if not is_requested(config) or "step" in vars(schedule):
        return
    from perseus_ds.runtime.attach import activate  # noqa: PLC0415  # heavy, and now needed

    def ready(*_: object, **__: object) -> bool:
        return bool(getattr(schedule, "_has_backward", True))

    def serve(*args: object, **kwargs: object) -> None:
        inputs = _shapes((*args, *kwargs.values()))
        activate(schedule, lambda: PipeliningAdapter(check(schedule), inputs), block=block_in_code(config))

    on_first_call(schedule, "step", ready=ready, serve=serve)


detach = detach_host


def _shapes(inputs: tuple[object, ...]) -> str:
    shapes = [getattr(one, "shape", None) for one in inputs]
    return " ".join("x".join(map(str, shape)) for shape in shapes if shape is not None)


# Every name of torch.distributed.pipelining that we rely on and no one promised us, checked before use.

TESTED_TORCH = ("2.13.0",)
"""Releases on which all seven schedules were run with us attached."""

OLDEST_TORCH = (2, 13)

Handler = Callable[..., object]


# Objects of torch.distributed.pipelining; the names below list what is used of them.
Action = Any  # schedules._Action, an instruction of the schedule's own representation
Stage = Any  # PipelineStage
PipelineSchedule = Any  # schedules._PipelineSchedule

SCHEDULE_NAMES = {
    "step": "knowing when an iteration starts and ends",
    "_n_microbatches": "recognising the job",
    "_has_backward": "distinguishing training from evaluation",
    "_maybe_compute_loss": "knowing when the last stage's forward ends",
}
STAGE_NAMES = {
    "forward_one_chunk": "running around every forward",
    "backward_one_chunk": "running around every backward",
    "backward_weight_one_chunk": "running around every weight gradient",
    "perform_reduce_grad": "knowing where replicas wait for each other",
    "submod": "recognising the job",
    "device": "knowing where it computes",
    "stage_index": "its place in the model",
    "num_stages": "the model's depth",
    "group_rank": "this rank's place in the pipeline",
    "group_size": "the pipeline's width",
    "is_last": "knowing who computes the loss",
}


def torch_release() -> Release:
    """Return the release that is imported, with those tested."""
    return Release("torch", torch.__version__, TESTED_TORCH)


def check(schedule: object) -> PipelineSchedule:
    """Return the schedule with its type, if everything that we rely on is there.

    Raises:
        EngineError: naming what is missing, the torch found and those tested.
    """
    release = torch_release()
    numbers = torch.__version__.split("+", maxsplit=1)[0].split(".")[:2]
    if tuple(map(int, numbers)) < OLDEST_TORCH:
        raise release.refusal("its pipelining is older than any that was tested")
    release.check(schedule, SCHEDULE_NAMES, where=type(schedule).__name__)
    found = cast("PipelineSchedule", schedule)
    stages = stages_of(found)
    if not stages:
        raise release.refusal(f"{type(schedule).__name__} has neither _stages nor _stage")
    for stage in stages:
        release.check(stage, STAGE_NAMES, where=type(stage).__name__)
    handled = sorted(kind.name for kind in _custom_functions(found) if kind.name != AT_ONCE)
    if handled:
        names = ", ".join(handled)
        raise EngineError(
            f"custom functions are registered for {names}: they run in place of the stages' own methods",
            hint=f"train without register_custom_function but for {AT_ONCE}, or without perseus_ds",
        )
    return found


def stages_of(schedule: PipelineSchedule) -> Sequence[Stage]:
    """Return the model stages that this rank holds."""
    several = getattr(schedule, "_stages", None)
    if several is not None:
        return cast("Sequence[Stage]", several)
    return [one for one in [getattr(schedule, "_stage", None)] if one is not None]


def _custom_functions(schedule: PipelineSchedule) -> Mapping[Any, Handler]:
    """Return what the user has registered in place of torch's own, by computation type."""
    return cast("Mapping[Any, Handler]", getattr(schedule, _CUSTOM, {}))


def at_once(schedule: PipelineSchedule) -> Handler | None:
    """Return the user's function that runs a forward and a backward at once; None where torch takes turns."""
    return next((f for kind, f in _custom_functions(schedule).items() if kind.name == AT_ONCE), None)


def splits_rows(schedule: PipelineSchedule) -> bool:
    """Return whether a batch is split along its first dimension: nobody reported otherwise."""
    given = (getattr(schedule, name, None) for name in ("_args_chunk_spec", "_kwargs_chunk_spec"))
    return all(spec is None for spec in given)


# What torch's schedules run, in our words.

KINDS: Mapping[str, Kind] = {
    "FORWARD": Kind.FORWARD,
    "FULL_BACKWARD": Kind.BACKWARD,
    "BACKWARD_INPUT": Kind.BACKWARD_INPUT,
    "BACKWARD_WEIGHT": Kind.BACKWARD_WEIGHT,
    "REDUCE_GRAD": Kind.REDUCE_GRADS,
}
"""torch's computation types and our words for them."""

AT_ONCE = "OVERLAP_F_B"
"""Type of a forward and a backward in one, which torch itself runs one after the other."""

_CUSTOM = "_comp_type_to_function_map"

BETWEEN = frozenset({"SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD"})
"""Types that are waited for outside of all that we run around: transfers are buffered."""

SINGLE = {"Schedule1F1B": "1f1b", "ScheduleGPipe": "gpipe-fifo"}
"""Schedules of one stage per rank run code of their own: what torch writes down of 1F1B is not what it runs.

Source: ``Schedule1F1B._get_pipeline_order`` of torch 2.13.0, whose last rank begins with microbatch 1.
"""


def written_order(actions: Iterable[Action], *, reduces: bool, at_once: bool = False) -> Order:
    """Read one rank's order off torch's own representation.

    ``reduces`` is whether ``REDUCE_GRAD`` waits for anybody, ``at_once`` whether a function of the user's
    runs overlapped pairs: torch itself runs them one after the other.

    Raises:
        EngineError: an instruction that we do not know.
    """
    order: list[Instruction] = []
    for action in actions:
        pair = action.sub_actions if action.computation_type.name == AT_ONCE else None
        found = [one for one in map(_instruction, pair or [action]) if one is not None]
        if pair and at_once:
            if [one.kind for one in found] != [Kind.FORWARD, Kind.BACKWARD]:
                raise EngineError(f"{action} overlaps something else than a forward and a whole backward")
            found = [Instruction.combine(*found)]
        order += [one for one in found if reduces or one.kind is not Kind.REDUCE_GRADS]
    return _with_step(order)


def single_order(names: Sequence[str], *, rank: int, ranks: int, microbatches: int, reduces: bool) -> Order:
    """Derive the order of a schedule with one stage per rank from the names of its classes.

    Raises:
        EngineError: the user's own class, of which nobody can state what it runs.
    """
    known = next((SINGLE[name] for name in names if name in SINGLE), None)
    if known is None:
        raise EngineError(
            f"{names[0]} runs one stage per rank in an order that is written down nowhere",
            hint=f"known: {', '.join(SINGLE)}, and every schedule with pipeline_order_with_comms",
        )
    order = list(textbook(known, stages=ranks, microbatches=microbatches).orders[rank])
    return _with_step([*order, Instruction(rank, Kind.REDUCE_GRADS, 0)] if reduces else order)


def _with_step(order: Sequence[Instruction]) -> Order:
    """Add what comes between two calls of ``step``: the optimizer."""
    home = min(part.stage for i in order for part in i.parts)
    return (*order, Instruction(home, Kind.STEP, 0))


def _instruction(action: Action) -> Instruction | None:
    """Name an action in our words; None for what lies between instructions."""
    name = action.computation_type.name
    if name in BETWEEN:
        return None
    if name not in KINDS:
        raise EngineError(f"the schedule has an action {name} that we do not know")
    return Instruction(action.stage_index, KINDS[name], action.microbatch_index or 0)


# Which replica a rank belongs to, read off what its stages' modules are wrapped in.


@dataclass(frozen=True, slots=True)
class DataParallel:
    """Place of this rank among those that hold the same stage.

    torch numbers no replicas; the group over which gradients are reduced does. Ranks with the same place in
    it are one replica, tensor-parallel peers included. ``reduces``: replicas wait in ``perform_reduce_grad``;
    ``gathers``: in every forward too.
    """

    name: str
    replica: int = 0
    replicas: int = 1
    reduces: bool = False
    gathers: bool = False
    precision: str = ""

    def describe(self) -> str:
        """Describe what changes how long computations take: never how many replicas there are."""
        gathers = ", gathers in every forward" if self.gathers else ""
        return f"{self.name}{gathers}{self.precision and f', in {self.precision}'}"


def data_parallel_of(stages: Sequence[Stage]) -> DataParallel:
    """Recognise FSDP2 (also its replicated form), DDP, or neither.

    Raises:
        EngineError: stages, or parts of one, that are reduced over different groups.
    """
    found = {_of_module(stage.submod) for stage in stages}
    if len(found) > 1:
        wrapped = ", ".join(sorted(f"{one.name} of {one.replicas}" for one in found))
        raise EngineError(
            f"the stages of one rank are wrapped in different ways: {wrapped}", hint="wrap all of them alike"
        )
    return found.pop()


def _of_module(module: Module) -> DataParallel:
    if isinstance(module, DistributedDataParallel):
        group = module.process_group
        return DataParallel("DDP", dist.get_rank(group), dist.get_world_size(group))
    return _of_fsdp(module) if isinstance(module, FSDPModule) else DataParallel("none")


def _of_fsdp(module: Module) -> DataParallel:
    """Look at all groups of parameters that are gathered and reduced together.

    A root whose resharding is left to FSDP2 keeps its parameters.

    Source: ``perform_reduce_grad`` in torch/distributed/pipelining/stage.py, ``FSDPState`` in
    torch/distributed/fsdp/_fully_shard/_fsdp_state.py, both @2.13.0.
    """
    places, precisions, gathers = set(), set(), False
    try:
        for part in module.modules():
            if not isinstance(part, FSDPModule):
                continue
            state = part._get_fsdp_state()  # noqa: SLF001  # the seam
            kept = part is module and state._auto_reshard_after_forward  # noqa: SLF001
            for group in state._fsdp_param_groups:  # noqa: SLF001
                places.add(_place(group.mesh_info))
                precisions.add(str(group.mp_policy.param_dtype or "").removeprefix("torch."))
                gathers |= group._reshard_after_forward and not kept  # noqa: SLF001
    except AttributeError as error:
        raise EngineError(f"FSDP2 has changed: {error}", hint="tested: torch 2.13") from error
    if len(places) > 1:
        raise EngineError(
            "parts of one stage are sharded over different groups of ranks (expert parallelism): "
            "its replicas wait for each other in every layer",
            hint="train without expert parallelism, or without perseus_ds",
        )
    replica, replicas = places.pop() if places else (0, 1)
    precision = " ".join(sorted(precisions)).strip()
    return DataParallel("FSDP2", replica, replicas, reduces=True, gathers=gathers, precision=precision)


def _place(mesh_info: object) -> tuple[int, int]:
    """Return this rank's place in the group that reduces, and its size: replicated times sharded."""
    place, size = 0, 1
    for name in ("replicate_process_group", "shard_process_group"):
        group = getattr(mesh_info, name, None)
        if group is not None:
            place = place * dist.get_world_size(group) + dist.get_rank(group)
            size *= dist.get_world_size(group)
    return place, size


# One schedule of torch.distributed.pipelining, as the runtime sees it.


class PipeliningAdapter(HookedAdapter):
    """A schedule and the model stages that this rank holds; ``inputs`` are the first batch's shapes.

    torch 2.13 calls all that hooks replace through these instances: no class, no module is touched.
    """

    name = "pipelining"

    def __init__(self, schedule: PipelineSchedule, inputs: str = "") -> None:
        super().__init__()
        self._schedule = schedule
        self._stages = sorted(stages_of(schedule), key=lambda stage: stage.stage_index)
        self._inputs = inputs
        self._data_parallel = data_parallel_of(self._stages)
        self._pair_thread: int | None = None
        self._pair_began = False

    @property
    def sync_point(self) -> SyncPoint:
        """FSDP2's reduction, where it is the last that a rank does and the only place to wait.

        With several chunks on a rank those reduced early make the others wait. DDP reduces within the last
        backward. Parameters resharded after every forward are gathered, and waited for, in the next.
        """
        alone = self._data_parallel.reduces and not self._data_parallel.gathers
        return SyncPoint.REDUCTION if alone and len(self._stages) == 1 else SyncPoint.UNMARKED

    @property
    def device(self) -> torch.device:
        return torch.device(self._stages[0].device)

    def place(self) -> Place:
        """Read stages, replica and this rank's own order."""
        parameters = {s.stage_index: list(s.submod.parameters()) for s in self._stages}
        order = self._order()
        return Place(
            pipeline_rank=self._stages[0].group_rank,
            replica=self._data_parallel.replica,
            order=order,
            parameters={stage: sum(p.numel() for p in some) for stage, some in parameters.items()},
            weights={s.stage_index: float(matmul_weight(s.submod)) for s in self._stages},
            dtypes=dtypes_of(p for some in parameters.values() for p in some),
            inputs=self._inputs,
            left_out=self._waiting_instructions(order),
            modules=describe_modules([s.submod for s in self._stages], device_type=self.device.type),
            untested=torch_release().untested,
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        return join_orders(places, name=f"torch.{type(self._schedule).__name__}")

    def traits(self) -> Mapping[str, str]:
        overlap, traits = at_once(self._schedule), {"data_parallel": self._data_parallel.describe()}
        if overlap is not None:
            traits["at_once"] = getattr(overlap, "__qualname__", type(overlap).__name__)
        return traits

    def _order(self) -> Order:
        first, reduces = self._stages[0], self._data_parallel.reduces
        written = getattr(self._schedule, "pipeline_order_with_comms", None)  # of all ranks, by rank
        if written is not None:
            overlaps = at_once(self._schedule) is not None
            return written_order(written[first.group_rank], reduces=reduces, at_once=overlaps)
        names = [kind.__name__ for kind in type(self._schedule).__mro__]
        place = {"rank": first.group_rank, "ranks": first.group_size}
        microbatches = self._schedule._n_microbatches  # noqa: SLF001  # the seam
        return single_order(names, **place, microbatches=microbatches, reduces=reduces)

    def _waiting_instructions(self, order: Order) -> frozenset[Instruction]:
        """Return what is not measured: DDP's reduction, FSDP2's first gathering are waited for inside."""
        if self._data_parallel.replicas == 1:
            return frozenset()
        return last_backwards(order) if self._data_parallel.name == "DDP" else first_forwards(order)

    def _hook(self) -> None:
        schedule, reduces = self._schedule, self._data_parallel.reduces
        if is_ours(schedule.step):
            raise EngineError("perseus_ds is installed on this schedule already")
        self._replace(schedule, "step", self._around_step(schedule.step))
        self._replace(schedule, "_maybe_compute_loss", self._around_loss(schedule._maybe_compute_loss))  # noqa: SLF001  # the seam
        if at_once(schedule) is not None:
            ours = {kind: self._around_pair(handler) for kind, handler in _custom_functions(schedule).items()}
            self._replace(schedule, _CUSTOM, ours)
        for stage in self._stages:
            # Of the last stage's forward only the beginning is announced: the loss belongs to it.
            forward = self._announce(Kind.FORWARD, stage.forward_one_chunk, ends=not stage.is_last)
            self._replace(stage, "forward_one_chunk", self._alone(forward, stage.forward_one_chunk))
            backward = self._around_backward(stage.backward_one_chunk)
            self._replace(stage, "backward_one_chunk", self._alone(backward, stage.backward_one_chunk))
            weight = self._announce(Kind.BACKWARD_WEIGHT, stage.backward_weight_one_chunk)
            self._replace(stage, "backward_weight_one_chunk", weight)
            if reduces:
                reduction = self._announce(Kind.REDUCE_GRADS, stage.perform_reduce_grad)
                self._replace(stage, "perform_reduce_grad", reduction)

    def _around_pair(self, handler: Handler) -> Handler:
        """Announce a forward and a backward at once, from the first chunk on that this thread runs of them.

        The user's function waits for the inputs of both, and may run one of them in another thread.
        """

        @wraps(handler)
        def around_call(*args: object, **kwargs: object) -> object:
            if not self.wanted:
                return handler(*args, **kwargs)
            self._pair_thread, self._pair_began = threading.get_ident(), False
            try:
                result = handler(*args, **kwargs)
            finally:
                self._pair_thread = None
            if self._pair_began:
                self._after(Kind.FORWARD_BACKWARD)
            else:
                self._do(_refuse_pair, None)
            return result

        return mark_as_ours(around_call)

    def _alone(self, announced: Handler, handler: Handler) -> Handler:
        """Announce a chunk, unless the function that runs it beside another one is announced."""

        @wraps(handler)
        def around_call(*args: object, **kwargs: object) -> object:
            if self._pair_thread is None:
                return announced(*args, **kwargs)
            if not self._pair_began and threading.get_ident() == self._pair_thread:
                self._pair_began = True
                self._before(Kind.FORWARD_BACKWARD)
            return handler(*args, **kwargs)

        return mark_as_ours(around_call)

    def _around_backward(self, handler: Handler) -> Handler:
        """Announce a whole backward, or the first half where torch asks for that only."""
        whole, half = (self._announce(kind, handler) for kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT))

        @wraps(handler)
        def around_call(*args: object, **kwargs: object) -> object:
            return (whole if kwargs.get("full_backward", True) else half)(*args, **kwargs)

        return mark_as_ours(around_call)

    def _around_loss(self, handler: Handler) -> Handler:
        @wraps(handler)
        def around_call(stage: Stage, *args: object, **kwargs: object) -> object:
            result = handler(stage, *args, **kwargs)
            if stage.is_last and self._pair_thread is None:
                self._after(Kind.FORWARD)
            return result

        return mark_as_ours(around_call)

    def _around_step(self, step: Handler) -> Handler:
        schedule = self._schedule
        microbatches = schedule._n_microbatches  # noqa: SLF001  # the seam; torch fixes it
        is_first = any(getattr(stage, "stage_index", None) == 0 for stage in self._stages)

        @wraps(step)
        def around_call(*args: object, **kwargs: object) -> object:
            def batch() -> Batch:
                counts = is_first and splits_rows(schedule)
                loads = count_chunks([*args, kwargs], microbatches) if counts else None
                return Batch(microbatches, loads=loads)

            trains = partial(getattr, schedule, "_has_backward")
            return self._run(partial(step, *args, **kwargs), trains=trains, batch=batch)

        return mark_as_ours(around_call)


def _refuse_pair() -> None:
    raise EngineError(
        f"the function registered for {AT_ONCE} runs both of its chunks in other threads",
        hint="run one of them in the thread that calls it",
    )
