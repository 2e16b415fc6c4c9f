"""A stage's weight, on stand-ins shaped like torch modules and DeepSpeed's PipelineModule."""

from collections.abc import Iterator
from functools import partial

import pytest

from perseus_ds.device import SimulatedSettings
from perseus_ds.emulation import weight_of_stage, work
from perseus_ds.errors import ConfigError


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size


class Linear:
    def __init__(self, *tensors: Tensor, children: "tuple[Linear, ...]" = ()) -> None:
        self.tensors, self.inner = tensors, children

    def modules(self) -> "Iterator[Linear]":
        yield self
        for child in self.inner:
            yield from child.modules()

    def parameters(self, *, recurse: bool = True) -> tuple[Tensor, ...]:
        assert not recurse
        return self.tensors


class Embedding(Linear): ...


class TokenAndPosition(Linear): ...


class Pipeline:
    def __init__(self, *layers: object) -> None:
        self.forward_funcs = layers


def head(tied: object, x: object) -> object:
    return x


def test_biases_norms_and_embeddings_do_not_multiply() -> None:
    block = Linear(Tensor(8), children=(Linear(Tensor(8, 4), Tensor(4)), Linear(Tensor(8))))
    assert weight_of_stage(Pipeline(Embedding(Tensor(100, 8)), block)) == 32


def test_embeddings_inside_a_module_are_left_out_too() -> None:
    assert weight_of_stage(TokenAndPosition(children=(Embedding(Tensor(100, 8)), Linear(Tensor(2, 2))))) == 4


def test_a_tied_head_counts_where_it_multiplies() -> None:
    tied = Embedding(Tensor(100, 8))
    assert weight_of_stage(Pipeline(tied)) == 0
    assert weight_of_stage(Pipeline(partial(head, tied), lambda x: x)) == 800


def test_work_is_in_proportion_and_the_mean_is_the_setting() -> None:
    settings = SimulatedSettings(mean_forward_s=0.4, backward_over_forward=2.0)
    stages = [work(weight, 2.0, settings) for weight in (1.0, 2.0, 3.0)]
    assert [round(stage.forward.seconds, 9) for stage in stages] == [0.2, 0.4, 0.6]
    assert stages[0].backward.seconds == pytest.approx(0.4)


def test_a_stage_without_weights_still_takes_some_time() -> None:
    assert work(0.0, 2.0, SimulatedSettings()).forward.seconds > 0


def test_a_listed_stage_takes_what_is_listed() -> None:
    settings = SimulatedSettings(forward_s=(0.1, 0.3))
    assert work(1.0, 1.0, settings, stage=1).forward.seconds == 0.3
    with pytest.raises(ConfigError, match="forward_s: 2 entries, but the job has a stage 2"):
        work(1.0, 1.0, settings, stage=2)
