"""DeepSpeed's pipeline engine keeps the contract of adapters: 1F1B, DualPipe-V, and a user's own schedule."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
from adapter_contract import AdapterContract, Noting
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed_hosts import MICROBATCHES, PreferenceEngine, dualpipe_v, one_f_one_b, users_own
from ranks import FailingData, batches, digest_of, losses, run_ranks, without
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from perseus_ds.adapters.deepspeed import KINDS, DeepSpeedAdapter
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e

ATTRIBUTES = ("_INSTRUCTION_MAP", "_exec_schedule", "_next_batch", "data_iterator")


class EngineHost:
    def __init__(self, engine: PipelineEngine) -> None:
        self.engine: Any = engine
        self.schedule = self.engine._train_schedule()
        self.data = FailingData(batches())

    def adapter(self) -> DeepSpeedAdapter:
        return DeepSpeedAdapter(self.engine, self.schedule)

    def train(self) -> Sequence[str]:
        return [float(self.engine.train_batch(self.data)).hex()]

    def modules(self) -> Mapping[int, nn.Module]:
        module, rank = self.engine.module, self.engine.stage_id
        if not hasattr(module, "phase_funcs"):
            return {rank: module}
        stages = rank, 2 * self.engine.num_stages - 1 - rank
        return {s: nn.ModuleList(layers) for s, layers in zip(stages, module.phase_funcs, strict=True)}

    def evaluate(self) -> bool:
        self.engine.eval_batch(self.data)
        return True

    def weights(self) -> str:
        return digest_of(self.engine.module.parameters())

    def fail_next(self, error: Exception) -> None:
        self.data.error = error

    def attributes(self) -> Mapping[str, object]:
        return {name: thing for name, thing in vars(self.engine).items() if name in ATTRIBUTES}

    def without(self, name: str) -> AbstractContextManager[None]:
        return without(name, self.engine)


class TestOneForwardOneBackward(AdapterContract):
    marked: Collection[Kind] = frozenset(KINDS.values())
    required = ("grid", "micro_batches", "micro_batch_size", "_INSTRUCTION_MAP", "_exec_schedule")
    counting = ("perseus_ds.adapters.deepspeed.count_load", "perseus_ds.adapters.input_size.count_load")

    def host(self, *, ranks: int) -> EngineHost:
        return EngineHost(one_f_one_b(ranks))


class TestUsersOwnSchedule(TestOneForwardOneBackward):
    """Its own class and constructor, an instruction that nobody knows, all forwards before all backwards."""

    marked = frozenset(Kind)

    def host(self, *, ranks: int) -> EngineHost:
        return EngineHost(users_own(ranks))


class TestTwoTransfersForEachMicrobatch(TestUsersOwnSchedule):
    """A reference model's activations travel before the trained one's."""

    def host(self, *, ranks: int) -> EngineHost:
        return EngineHost(users_own(ranks, kind=PreferenceEngine))


class TestDualPipeV(TestOneForwardOneBackward):
    def host(self, *, ranks: int) -> EngineHost:
        return EngineHost(dualpipe_v(ranks) if ranks > 1 else one_f_one_b(1))


class Between(TorchDispatchMode):
    """Counts what is computed within instructions, and names what is between two of them."""

    def __init__(self, noting: Noting) -> None:
        super().__init__()
        self.noting, self.within, self.between = noting, 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        iterations = self.noting.iterations
        if self.noting.running is not None:
            self.within += 1
        elif iterations and iterations[-1].kinds and iterations[-1].ended is None:
            self.between.append(str(func))
        return func(*args, **(kwargs or {}))


def counted(_: int) -> tuple[int, list[str]]:
    engine, noting = one_f_one_b(2), Noting()
    DeepSpeedAdapter(engine, None).install(noting)
    with Between(noting) as between:
        losses(engine, 2)
    return between.within, between.between


def test_nothing_is_computed_between_two_instructions() -> None:
    """So that one mark is enough for the end of one and the begin of the next."""
    assert DeepSpeedAdapter.adjoining
    for one in run_ranks(2, counted):
        within, between = one.value
        assert within > 2 * MICROBATCHES
        assert between == []
