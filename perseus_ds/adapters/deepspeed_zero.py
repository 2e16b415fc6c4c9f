"""Engines of DeepSpeed without a pipeline: the order is that of the first iteration of the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import groupby, pairwise
from types import ModuleType
from typing import Any, cast

import torch
import torch.distributed as dist

from perseus_ds.adapters.base import (
    detach_host,
    dtypes_of,
    is_ours,
    mark_as_ours,
    on_construction,
    on_first_call,
)
from perseus_ds.adapters.deepspeed import EngineAdapter, coupled_by_experts, deepspeed_release
from perseus_ds.adapters.deepspeed_settings import (
    ZERO_GATHERS,
    EngineSettings,
    deepspeed_version,
    is_pipeline,
    read_request,
    tunes_itself,
)
from perseus_ds.adapters.input_size import count_load
from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, Place, SyncPoint
from perseus_ds.runtime.place import describe_modules
from perseus_ds.schedule import Instruction, Kind, Load, Order, Schedule, last_backwards, validate


def watch(module: ModuleType) -> None:
    """Look at every DeepSpeedEngine after it is built; those with a pipeline have an adapter of their own."""
    on_construction(module.DeepSpeedEngine, lambda engine: None if is_pipeline(engine) else attach(engine))


def serves(host: object) -> bool:
    """Return whether this is an engine of DeepSpeed's without a pipeline."""
    return any(kind.__name__ == "DeepSpeedEngine" for kind in type(host).__mro__) and not is_pipeline(host)


def attach(engine: object, *, config: Mapping[str, object] | None = None) -> None:
    """Serve this engine from its second training iteration on, if it is asked for.

    The first one shows the order that the user's loop runs in. Calling it again does nothing. What goes wrong
    is one line in the log and training at default clocks, unless the block has ``"on_error": "raise"``.
    """
    content = read_request(engine, config)
    if content is None or "forward" in vars(engine):
        return
    from perseus_ds.runtime.attach import activate, decline, say  # noqa: PLC0415  # heavy, and now needed

    if tunes_itself(content):
        say("off: autotuning measures the job itself")
        return
    try:
        found = check(engine)
        first, seeing = FirstIteration(), ZeroAdapter(found)
        seeing.install(first)
    except Exception as error:  # noqa: BLE001  # the host wins
        decline(error, content.get("perseus"))
        return

    def ready(*_: object, **__: object) -> bool:
        return first.ended and bool(found.training)

    def serve(*_: object, **__: object) -> None:
        seeing.remove()
        activate(engine, lambda: ZeroAdapter(found, order_of(first.kinds)), block=content.get("perseus"))

    on_first_call(engine, "forward", ready=ready, serve=serve)


detach = detach_host


# Every name of ``DeepSpeedEngine`` that we rely on and that no one promised us, checked before use.


Engine = Any  # deepspeed.runtime.engine.DeepSpeedEngine; REQUIRED_NAMES lists what is used of it

REQUIRED_NAMES = {
    "forward": "running around forwards",
    "backward": "running around backwards",
    "allreduce_gradients": "knowing where replicas wait for each other",
    "_take_model_step": "running around the optimizer",
    "step": "knowing when an iteration ends",
    "is_gradient_accumulation_boundary": "knowing when an iteration ends",
    "gradient_accumulation_steps": "recognising changed batches",
    "zero_optimization_stage": "knowing where replicas wait for each other",
    "train_micro_batch_size_per_gpu": "recognising the job",
    "data_parallel_group": "knowing the replica",
    "mp_world_size": "recognising the job",
    "module": "recognising the job",
}


def check(engine: object) -> Engine:
    """Return the engine with its type, if everything that we rely on is there.

    Raises:
        EngineError: naming what is missing, or what cannot be served, and why.
    """
    deepspeed_release().check(engine, REQUIRED_NAMES, where="DeepSpeedEngine")
    found = cast("Engine", engine)
    if (refusal := settings_of_engine(found).refusal()) is not None:
        raise refusal
    return found


def settings_of_engine(engine: Engine) -> EngineSettings:
    """Return the settings that decide whether this engine can be served."""
    overlaps = getattr(engine, "zero_overlap_comm", None)
    compiled = getattr(engine, "is_deepcompile_enabled", None)
    return EngineSettings(
        zero_stage=int(engine.zero_optimization_stage()),
        overlap_comm=callable(overlaps) and bool(overlaps()),
        replicas=getattr(engine, "dp_world_size", 1),
        accumulation_steps=engine.gradient_accumulation_steps(),
        zenflow=bool(getattr(engine, "zenflow", False)),
        hybrid_engine=any(kind.__name__ == "DeepSpeedHybridEngine" for kind in type(engine).__mro__),
        deepcompile=callable(compiled) and bool(compiled()),
    )


# The order of a training loop: read off the first iteration, because the loop is the user's own code.

_SKIPPED = (Kind.FORWARD, Kind.FORWARD)


class FirstIteration:
    """A listener that notes one iteration and states when it is over."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.ended = False

    def iteration_begins(self, batch: Batch) -> bool:
        del batch
        self.kinds.clear()
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        del load
        self.kinds.append(kind)

    def after(self, kind: Kind) -> None: ...

    def iteration_ends(self) -> None:
        self.ended = True

    def other_schedule_begins(self) -> None: ...

    def iteration_broke(self) -> None: ...

    def fail(self, error: Exception) -> bool:
        """Leave the line to the caller: there is nothing to restore."""
        raise error


def order_of(kinds: Iterable[Kind]) -> Order:
    """Number the instructions that ran: the n-th of a kind is that of microbatch n, on the one model stage.

    A forward that another forward follows is a skipped microbatch (its loss was not finite, memory ran out),
    where others of the loop have their backwards.

    Raises:
        EngineError: a loop in which not every forward has its backward.
    """
    ran = list(kinds)
    if 1 in {len(list(alike)) for kind, alike in groupby(ran) if kind is Kind.FORWARD}:
        ran = [kind for kind, after in pairwise([*ran, None]) if kind and (kind, after) != _SKIPPED]
    turns: Counter[Kind] = Counter()
    order = []
    for kind in ran:
        order.append(Instruction(0, kind, turns[kind]))
        turns[kind] += 1
    if turns[Kind.FORWARD] != turns[Kind.BACKWARD] or not turns[Kind.FORWARD]:
        raise EngineError(
            f"the training loop runs {turns[Kind.FORWARD]} forwards and {turns[Kind.BACKWARD]} backwards of "
            "the engine in one iteration, which cannot be distinguished",
            hint="one backward for each forward of the engine",
        )
    return tuple(order)


def resize_order(order: Order, microbatches: int) -> Order:
    """Return the same loop over another number of microbatches.

    Raises:
        EngineError: a loop whose microbatches but the last are not run alike.
    """
    kinds = [one.kind for one in order]
    begins = [place for place, kind in enumerate(kinds) if kind is Kind.FORWARD]
    if len(begins) == microbatches:
        return order
    *others, last = (kinds[a:b] for a, b in pairwise([*begins, len(kinds)]))
    if begins[0] != 0 or len({tuple(one) for one in others}) != 1:
        raise EngineError(
            f"how this loop runs {microbatches} microbatches does not follow from how it ran {len(begins)}"
        )
    return order_of([*others[0] * (microbatches - 1), *last])


Begin = Callable[..., Kind | None]
End = Callable[[Kind | None], None]

_ALWAYS_REDUCES = 2  # from this ZeRO stage on every microbatch's gradients are reduced


class ZeroAdapter(EngineAdapter):
    """A `DeepSpeedEngine`, and the order that its first iteration ran in.

    A forward in training begins an iteration; the step at the boundary of gradient accumulation ends it. A
    backward begins with ``engine.backward`` or with the engine's own prologue (``loss.backward()``, DeepSpeed
    0.18.3 and later), and ends where gradients are reduced, or with itself.
    """

    name = "zero"

    def __init__(self, engine: Engine, order: Order = ()) -> None:
        super().__init__(engine)
        self._order = order
        self._always_reduces = engine.zero_optimization_stage() >= _ALWAYS_REDUCES
        self._running = False
        self._in_backward = False
        self._others = False
        self._around: Mapping[str, tuple[Begin, End]] = {
            "forward": (self._begin_forward, self._end_kind),
            "backward": (self._begin_backward, self._end_backward),
            "_backward_prologue": (self._begin_backward, _do_nothing),
            "_backward_epilogue": (_do_nothing, self._end_backward),
            "allreduce_gradients": (self._begin_reduction, self._end_kind),
            "_take_model_step": (partial(self._begin_kind, Kind.STEP), self._end_kind),
            "step": (self._begin_step, self._end_step),
        }

    @property
    def sync_point(self) -> SyncPoint:
        """Replicas wait at the reduction, at every layer (ZeRO-3), or in the last backward.

        That one contains the wait where gradients are reduced while it runs (``overlap_comm``).
        """
        gathers = self._engine.zero_optimization_stage() >= ZERO_GATHERS
        unmarked = gathers or settings_of_engine(self._engine).waits_in_backward
        return SyncPoint.UNMARKED if unmarked else SyncPoint.REDUCTION

    def place(self) -> Place:
        """State one model stage on one pipeline rank; every data-parallel rank is a replica."""
        engine = check(self._engine)
        parameters = list(engine.module.parameters())
        order = resize_order(self._order, engine.gradient_accumulation_steps())
        return Place(
            pipeline_rank=0,
            replica=dist.get_group_rank(engine.data_parallel_group, dist.get_rank()),
            order=order,
            parameters={0: sum(int(getattr(p, "ds_numel", p.numel())) for p in parameters)},
            weights={0: 1.0},
            dtypes=dtypes_of(parameters),
            left_out=last_backwards(order) if settings_of_engine(engine).waits_in_backward else frozenset(),
            modules=describe_modules([engine.module], device_type=self.device.type),
            untested=deepspeed_release().untested,
            coupled=coupled_by_experts(engine.module),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Return the loop that all ranks run.

        Raises:
            EngineError: ranks whose loops differ.
        """
        if len({place.order for place in places}) != 1:
            raise EngineError(
                "the ranks run different training loops", hint="every rank has to run the same microbatches"
            )
        order = places[0].order
        microbatches = sum(one.kind is Kind.FORWARD for one in order)
        schedule = Schedule(f"zero-{self._engine.zero_optimization_stage()}", microbatches, (order,))
        validate(schedule)
        return schedule

    def traits(self) -> Mapping[str, str]:
        return {
            "zero_stage": str(int(self._engine.zero_optimization_stage())),
            "tensor_parallel": str(self._engine.mp_world_size),
            "micro_batch_size": str(self._engine.train_micro_batch_size_per_gpu()),
            "deepspeed": deepspeed_version(),
        }

    def remove(self) -> None:
        """Restore the engine; safe to call twice, also from within an iteration."""
        self._running = self._in_backward = False
        super().remove()

    def _hook(self) -> None:
        if any(is_ours(vars(self._engine).get(name)) for name in self._around):
            raise EngineError("perseus_ds is installed on this engine already")
        for name, (begin, end) in self._around.items():
            original = getattr(self._engine, name, None)
            if original is not None:
                self._replace(self._engine, name, self._wrap(original, begin, end))

    def _wrap(self, original: Callable[..., object], begin: Begin, end: End) -> Callable[..., object]:
        """Call ``begin`` before the original, and ``end`` after it with the result of ``begin``."""

        @wraps(original)
        def around_call(*args: object, **kwargs: object) -> object:
            if self._removed:
                return original(*args, **kwargs)
            begun = self._do(partial(begin, *args, **kwargs), None)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if self._running:  # once, however many of our frames it passes
                    self._running = self._in_backward = False
                    self._break()
                raise
            self._do(partial(end, begun), None)
            return result

        return mark_as_ours(around_call)

    def _begin_kind(self, kind: Kind, *_: object, **__: object) -> Kind:
        self._before(kind)
        return kind

    def _end_kind(self, kind: Kind | None) -> None:
        if kind is not None:
            self._after(kind)

    def _begin_forward(self, *args: object, **kwargs: object) -> Kind | None:
        if not (self._engine.training and torch.is_grad_enabled()):
            if not self._others:
                self._others = True
                self._listener.other_schedule_begins()
            return None
        self._others = False
        if not self._running:
            self._running = True
            self._begin(lambda: Batch(self._engine.gradient_accumulation_steps()))
        self._before(Kind.FORWARD, lambda: count_load([*args, kwargs]))
        return Kind.FORWARD

    def _begin_backward(self, *_: object, **__: object) -> Kind | None:
        if self.wanted and not self._in_backward:
            self._in_backward = True
            self._before(Kind.BACKWARD)
        return None

    def _end_backward(self, _: Kind | None = None) -> None:
        if self._in_backward:
            self._in_backward = False
            self._after(Kind.BACKWARD)

    def _begin_reduction(self, *_: object, **__: object) -> Kind | None:
        self._end_backward()
        if not (self._always_reduces or self._engine.is_gradient_accumulation_boundary()):
            return None
        return self._begin_kind(Kind.REDUCE_GRADS)

    def _begin_step(self, *_: object, **__: object) -> Kind | None:
        return Kind.STEP if self._engine.is_gradient_accumulation_boundary() else None

    def _end_step(self, last: Kind | None) -> None:
        if last is not None and self._running:
            self._running = self.wanted = False
            self._listener.iteration_ends()


def _do_nothing(*_: object, **__: object) -> None:
    """Begin or end nothing."""
