"""A stage's weight, on stand-ins shaped like torch modules and DeepSpeed's PipelineModule."""

from collections.abc import Iterator
from functools import partial

from perseus_ds.adapters.deepspeed import weight_of


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
    assert weight_of([Embedding(Tensor(100, 8)), block]) == 32


def test_embeddings_inside_a_module_are_left_out_too() -> None:
    assert weight_of([TokenAndPosition(children=(Embedding(Tensor(100, 8)), Linear(Tensor(2, 2))))]) == 4


def test_a_tied_head_counts_where_it_multiplies() -> None:
    tied = Embedding(Tensor(100, 8))
    assert weight_of([tied]) == 0
    assert weight_of([partial(head, tied), lambda x: x]) == 800
