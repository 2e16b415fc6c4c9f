"""torch's schedules keep the contract of adapters: a stage on every rank, chunks in a loop, chunks in a V."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
from adapter_contract import AdapterContract
from pipelines import Pipeline
from ranks import without
from torch import nn

from perseus_ds.adapters.torch_pipelining import SCHEDULE_NAMES, STAGE_NAMES, PipeliningAdapter, check
from perseus_ds.schedule import Kind

pytestmark = pytest.mark.e2e

NAMES = [*SCHEDULE_NAMES, *STAGE_NAMES]
CALLED = [name for name in NAMES if name.endswith("_chunk") or name in {"step", "_maybe_compute_loss"}]


class PipelineHost:
    """A rank's part of a small pipeline."""

    def __init__(self, name: str, *, microbatches: int, evaluates: bool, at_once: bool) -> None:
        self.pipeline = Pipeline(name, microbatches, inner=lambda stage: 8 * (1 + stage), at_once=at_once)
        self._holders: list[Any] = [self.pipeline.schedule, *self.pipeline.stages]
        self._evaluates = evaluates

    def adapter(self) -> PipeliningAdapter:
        return PipeliningAdapter(check(self.pipeline.schedule))

    def train(self) -> Sequence[str]:
        return self.pipeline.train()

    def modules(self) -> Mapping[int, nn.Module]:
        return {stage.stage_index: stage.submod for stage in self.pipeline.stages}

    def evaluate(self) -> bool:
        if self._evaluates:
            self.pipeline.evaluate()
        return self._evaluates

    def weights(self) -> str:
        return self.pipeline.weights()

    def fail_next(self, error: Exception) -> None:
        def failing(*tensors: object) -> None:
            raise error

        self.pipeline.schedule._loss_fn = failing

    def attributes(self) -> Mapping[str, object]:
        return {
            f"{number} {name}": vars(holder)[name]
            for number, holder in enumerate(self._holders)
            for name in CALLED
            if name in vars(holder)
        }

    def without(self, name: str) -> AbstractContextManager[None]:
        return without(name, *self._holders)


class TestOneForwardOneBackward(AdapterContract):
    marked: Collection[Kind] = frozenset(kind for kind in Kind if kind.is_computation)
    required = tuple(NAMES)
    counting = ("perseus_ds.adapters.torch_pipelining.count_chunks",)
    schedule = "1F1B"
    at_once = False

    def host(self, *, ranks: int) -> PipelineHost:
        name = self.schedule if ranks > 1 else "1F1B"
        evaluates = name in {"1F1B", "Interleaved"}
        at_once = self.at_once and ranks > 1
        return PipelineHost(name, microbatches=2 * ranks, evaluates=evaluates, at_once=at_once)


class TestInterleaved(TestOneForwardOneBackward):
    schedule = "Interleaved"


class TestSplitBackwardsInAV(TestOneForwardOneBackward):
    """torch's own evaluation fails on this one."""

    schedule = "ZBV"


class TestForwardAndBackwardAtOnce(TestOneForwardOneBackward):
    """With a function of the user's for torch's overlapped pairs, which runs one of them in a thread."""

    schedule = "DualPipeV"
    at_once = True
