"""The adapter of somebody else's framework: entry functions, hooks and what the runtime asks, in one file."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import ModuleType
from typing import Any

import torch

from perseus_ds.errors import EngineError
from perseus_ds.runtime.adapter import Batch, InstructionListener, Place, SyncPoint
from perseus_ds.runtime.attach import activate, deactivate
from perseus_ds.runtime.place import describe_modules, matmul_weight
from perseus_ds.schedule import Instruction, Kind, Schedule, validate

NAMES = ("step", "forward", "backward")


def watch(module: ModuleType) -> None:
    """Look at every trainer after it is built; called once the framework is imported."""
    original = module.Trainer.__init__

    @wraps(original)
    def built(trainer: object, *args: object, **kwargs: object) -> None:
        original(trainer, *args, **kwargs)
        attach(trainer)

    module.Trainer.__init__ = built


def serves(host: object) -> bool:
    return type(host).__module__ == "plodder"


def attach(trainer: Any, *, config: Mapping[str, object] | None = None) -> None:  # noqa: ANN401
    block = None if config is None else {"enabled": True, **config}
    if block is None and not os.environ.get("PERSEUS_CONFIG"):
        return

    def first() -> object:
        del trainer.step
        activate(trainer, partial(PlodderAdapter, trainer), block=block)
        return trainer.step()

    trainer.step = first


def detach(trainer: object) -> None:
    deactivate(trainer)


class PlodderAdapter:
    """A trainer, as the runtime sees it."""

    name = "plodder"
    sync_point = SyncPoint.UNMARKED
    local_rank = 0
    device = torch.device("cpu")
    scalars_every = None

    def __init__(self, trainer: Any) -> None:  # noqa: ANN401
        self._trainer = trainer

    def place(self) -> Place:
        model = self._trainer.model
        kinds = (Kind.FORWARD, Kind.BACKWARD)
        microbatches = range(self._trainer.microbatches)
        return Place(
            pipeline_rank=0,
            replica=0,
            order=tuple(Instruction(0, kind, number) for number in microbatches for kind in kinds),
            parameters={0: sum(p.numel() for p in model.parameters())},
            weights={0: float(matmul_weight(model))},
            dtypes="float32",
            modules=describe_modules([model], device_type="cpu"),
        )

    def schedule(self, places: Sequence[Place]) -> Schedule:
        schedule = Schedule("plodder", self._trainer.microbatches, (places[0].order,))
        validate(schedule)
        return schedule

    def traits(self) -> Mapping[str, str]:
        return {"plodder": "1.0"}

    def install(self, listener: InstructionListener) -> None:
        trainer = self._trainer
        if any(name in vars(trainer) for name in NAMES):
            raise EngineError("perseus_ds is installed on this trainer already")
        trainer.forward = _around(listener, Kind.FORWARD, trainer.forward)
        trainer.backward = _around(listener, Kind.BACKWARD, trainer.backward)
        trainer.step = self._around_step(listener, trainer.step)

    def remove(self) -> None:
        for name in NAMES:
            vars(self._trainer).pop(name, None)

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Nobody looks."""

    def _around_step(self, listener: InstructionListener, step: Callable[[], object]) -> Callable[[], object]:
        def listened() -> object:
            listener.iteration_begins(Batch(self._trainer.microbatches))
            result = step()
            listener.iteration_ends()
            return result

        return listened


def _around(
    listener: InstructionListener, kind: Kind, original: Callable[..., object]
) -> Callable[..., object]:
    @wraps(original)
    def listened(*args: object) -> object:
        listener.before(kind)
        result = original(*args)
        listener.after(kind)
        return result

    return listened
