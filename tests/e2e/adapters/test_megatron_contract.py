"""megatron-core's schedules keep the contract of adapters: 1F1B, interleaved, and both ways at once."""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pytest
import torch.distributed as dist
from adapter_contract import AdapterContract
from ranks import FailingData
from torch import nn

from perseus_ds.adapters.megatron import COMBINED_MODULE, COMBINED_STEP, PASSES, REQUIRED_NAMES, STEPS
from perseus_ds.schedule import Kind

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

from megatron_jobs import Job, Shape, adapter_of

pytestmark = pytest.mark.e2e


class ModelHost:
    """A model and its optimizer; the function that runs a pass is asked for anew at every step."""

    def __init__(self, shape: Shape) -> None:
        self.job = Job(shape)
        self.job.data = self.data = [FailingData(batches) for batches in self.job.data]

    def adapter(self) -> Any:  # noqa: ANN401
        return adapter_of(self.job)

    def train(self) -> Sequence[str]:
        self.job.run_pass = self.job.schedules.get_forward_backward_func()
        return self.job.step()

    def modules(self) -> Mapping[int, nn.Module]:
        rank, ranks = dist.get_rank(), self.job.shape.pipeline
        return {number * ranks + rank: chunk for number, chunk in enumerate(self.job.chunks)}

    def evaluate(self) -> bool:
        self.job.call(self.job.schedules.get_forward_backward_func(), forward_only=True)
        return True

    def weights(self) -> str:
        return self.job.weights()

    def fail_next(self, error: Exception) -> None:
        self.data[0].error = error

    def attributes(self) -> Mapping[str, object]:
        module = vars(self.job.schedules)
        reductions = {
            f"{number}.finish_grad_sync": vars(chunk)["finish_grad_sync"]
            for number, chunk in enumerate(self.job.chunks)
            if "finish_grad_sync" in vars(chunk)
        }
        combined = {COMBINED_STEP: getattr(sys.modules[COMBINED_MODULE], COMBINED_STEP)}
        return {name: module[name] for name in (*PASSES, *STEPS)} | reductions | combined

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        *path, last = name.split(".")
        owner = reduce(getattr, path, self.job.schedules)
        kept = getattr(owner, last)
        delattr(owner, last)
        try:
            yield
        finally:
            setattr(owner, last, kept)


class TestOneForwardOneBackward(AdapterContract):
    marked: Collection[Kind] = frozenset({Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE_GRADS})
    required = tuple(REQUIRED_NAMES)
    counting = ("perseus_ds.adapters.input_size.count_load",)

    def host(self, *, ranks: int) -> ModelHost:
        return ModelHost(Shape(ranks))


class TestInterleaved(TestOneForwardOneBackward):
    def host(self, *, ranks: int) -> ModelHost:
        return ModelHost(Shape(ranks, 2, overlap_p2p=True) if ranks > 1 else Shape())


class TestForwardAndBackwardAtOnce(TestOneForwardOneBackward):
    """Interleaved, and on one rank without a pipeline."""

    marked = frozenset({Kind.FORWARD, Kind.BACKWARD, Kind.FORWARD_BACKWARD, Kind.REDUCE_GRADS})
    before_marks = frozenset({"VocabParallelEmbedding", "Embedding", "Dropout"})  # then it waits

    def host(self, *, ranks: int) -> ModelHost:
        several = Shape(ranks, 2, overlap_p2p=True, combined=True)
        return ModelHost(several if ranks > 1 else Shape(combined=True))
