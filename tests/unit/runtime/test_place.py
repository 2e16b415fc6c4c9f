"""Orders of all ranks joined into a schedule, and the words that describe modules."""

import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.nn import Linear, Module, Sequential
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from perseus_ds.errors import EngineError, ScheduleError
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.place import describe_modules, join_orders
from perseus_ds.schedule import textbook

ZBV = textbook("zbv", stages=4, microbatches=4)


def place(rank: int, replica: int, order: int) -> Place:
    return Place(rank, replica, ZBV.orders[order], {}, {}, "float32")


def test_replicas_that_run_the_same_make_one_schedule() -> None:
    places = [place(rank, replica, rank) for replica in range(2) for rank in range(2)]
    assert join_orders(places, name="zbv") == ZBV


def test_orders_that_differ_or_cannot_run_together_are_refused() -> None:
    with pytest.raises(EngineError, match="different schedules"):
        join_orders([place(0, 0, 0), place(1, 0, 1), place(0, 1, 1)], name="zbv")
    with pytest.raises(ScheduleError):
        join_orders([place(0, 0, 0), place(1, 0, 0)], name="zbv")


# What is said of modules: whatever changes how long they take makes another job of it.


def layers() -> Sequential:
    return Sequential(Linear(2, 2), Linear(2, 2), Linear(2, 2))


def words(*modules: Module) -> str:
    return describe_modules(modules, device_type="cpu")


def compiled(layer: Module) -> Module:
    """Nothing is compiled before it is called; what torch imports for it is deprecated by torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        layer.compile()
    return layer


def with_attribute(name: str, value: object) -> Callable[[Module], Module]:
    def change(layer: Module) -> Module:
        setattr(layer, name, value)
        return layer

    return change


SELECTIVELY = partial(create_selective_checkpoint_contexts, [])
SELECTIVE = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT, context_fn=SELECTIVELY)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (checkpoint_wrapper, "checkpointed"),
        (SELECTIVE, "checkpointed selectively"),
        (checkpoint, "checkpointed"),
        (with_attribute("gradient_checkpointing", True), "checkpointed"),
        (with_attribute("activation_checkpoint_interval", 2), "checkpointed every 2 layers"),
        (offload_wrapper, "offloaded"),
        pytest.param(compiled, "compiled", marks=pytest.mark.thorough),  # imports the compiler
    ],
)
def test_every_layer_that_is_run_otherwise_is_counted(change: Callable[[Module], Module], said: str) -> None:
    changed = layers()
    for place in (0, 2):
        changed[place] = change(changed[place])
    assert words(changed, layers()) == f"2 {said}"
    assert words(changed, checkpoint_wrapper(Linear(2, 2))) != words(changed)


def test_the_precision_of_autocast_is_said() -> None:
    assert words(layers(), layers()) == "plain"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert words(layers()) == "autocast to bfloat16"
        assert words(offload_wrapper(Linear(2, 2))) == "1 offloaded, autocast to bfloat16"
    assert words(layers()) == "plain"
