"""Counting never raises, whatever a batch holds, and looks at so many of its elements and no more."""

from collections import OrderedDict, UserDict, deque
from collections.abc import Iterator
from itertools import chain, count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_ds.adapters.input_size import ReadAhead, count_chunks, count_load
from perseus_ds.schedule import Load

MOST = 10_000
NAMES = (
    *("input_ids", "tokens", "text", "attention_mask", "cu_seqlens", "cu_seqlens_q", "lengths", "seq_lens"),
    *("image_grid_thw", "pixel_values", "images", "packed_seq_params", "labels"),
)
DTYPES = (torch.int64, torch.int32, torch.bool, torch.float32, torch.bfloat16, torch.complex64, torch.uint8)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of 0 to 4 dimensions, empty ones among them, on the host or on no device at all."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    device = draw(st.sampled_from(["cpu", "cpu", "cpu", "meta"]))
    below = draw(st.sampled_from([1, 2, 2, 50]))
    made = torch.randint(below, shape, device=device).to(draw(st.sampled_from(DTYPES)))
    return made.requires_grad_() if made.is_floating_point() and draw(st.booleans()) else made


class Raising:
    """As hostile as an object can be."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)

    def __len__(self) -> int:
        raise OSError

    def __eq__(self, other: object) -> bool:
        raise MemoryError

    __hash__ = None  # type: ignore[assignment]


class Lying(dict[str, object]):
    """A mapping whose entries are away."""

    def items(self) -> Any:  # noqa: ANN401
        raise KeyError("gone")


def circular() -> list[object]:
    nest: list[object] = [torch.zeros(2, 3)]
    nest.append(nest)
    nest.append({"input_ids": nest, "self": nest})
    return nest


def deep() -> object:
    nest: object = torch.zeros(2)
    for turn in range(2_000):
        nest = [nest] if turn % 2 else {"tokens": nest}
    return nest


numbers = st.floats() | st.integers() | st.booleans() | st.sampled_from([10**400, -1, float("nan")])
odd = st.sampled_from([None, "a text", b"bytes", 1j, object(), range(9), deque([1]), {1, 2}, iter([1])])
arrays = st.sampled_from(
    [np.zeros(()), np.zeros(0), np.arange(5), np.ones((2, 3)), np.array([None, "a"]), np.array(["x"])]
)
made_anew = st.builds(circular) | st.builds(deep) | st.builds(Raising) | st.builds(Lying)
ragged = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4)
nested_tensors = st.builds(
    lambda rows: torch.nested.nested_tensor([torch.ones(1 + n, 2) for n in rows], layout=torch.jagged),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
sparse = st.builds(lambda n: torch.eye(n).to_sparse(), st.integers(1, 4))
leaves = (
    tensors() | tensors() | tensors() | numbers | odd | arrays | ragged | made_anew | nested_tensors | sparse
)
names = st.sampled_from(NAMES) | st.text(max_size=3) | st.integers(0, 3)
batches = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(numbers, max_size=6)
        | st.dictionaries(names, inner, max_size=5)
        | st.dictionaries(names, inner, max_size=3).map(UserDict)
        | st.dictionaries(names, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3).map(lambda d: SimpleNamespace(**d))
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3).map(
            lambda d: {"packed_seq_params": SimpleNamespace(**d)}
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(batches)
def test_counting_never_raises(batch: object) -> None:
    load = count_load(batch)
    assert load is None or load.tokens >= 0.0
    found = count_chunks([batch, {"input_ids": batch}], 3)
    assert found is None or len(found) == 3
    data = iter([batch])
    ahead = ReadAhead(data)
    ahead.loads(1)
    assert next(ahead) is batch


visited = count()


def seen(things: Any) -> Iterator[Any]:  # noqa: ANN401
    return (thing for thing in things if next(visited) >= 0)


class Row(list[object]):
    """Counts how many of its elements are looked at."""

    def __iter__(self) -> Iterator[object]:
        return seen(super().__iter__())

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        return next(seen([super().__getitem__(index)]))


class Table(dict[str, object]):
    """Counts the same of its entries."""

    def items(self) -> Any:  # noqa: ANN401
        return seen(super().items())

    def values(self) -> Any:  # noqa: ANN401
        return seen(super().values())

    def __iter__(self) -> Iterator[str]:
        return seen(super().__iter__())


def wide(width: int) -> list[object]:
    rows: object = Row([torch.zeros(1)] * width)
    for _ in range(3):
        rows = Row([rows] * width)
    return [rows]


HUGE = {
    "numbers": Row([1] * 1_000_000),
    "lengths": {"lengths": Row([1] * 1_000_000)},
    "boundaries": {"cu_seqlens": Row([1] * 1_000_000), "input_ids": torch.zeros(1, 9)},
    "images": {"images": Row([torch.zeros(3, 2, 2)] * 100_000)},
    "rows": Row([[1, 2]] * 1_000_000),
    "entries": Table({str(n): n for n in range(300_000)}),
    "nested": wide(200),
    "tables": Row([Table({str(n): [n] for n in range(500)})] * 500),
}


@pytest.mark.parametrize("case", HUGE)
def test_of_a_huge_batch_a_bounded_number_of_elements_is_looked_at(case: str) -> None:
    before = next(visited)
    count_load(HUGE[case])
    between = next(visited)
    assert between - before <= MOST
    count_chunks([HUGE[case]], 2)
    assert next(visited) - between <= 4 * MOST


def test_a_huge_tensor_is_not_read() -> None:
    """Half a gigabyte each, of which no page is there before it is read."""
    rows, columns = 1 << 13, 1 << 13
    huge = torch.empty(rows, columns, dtype=torch.int64)
    sizes = Load(float(rows * columns), float(rows * columns**2))
    assert count_load({"input_ids": huge, "attention_mask": huge}) == sizes
    assert count_load({"input_ids": huge, "cu_seqlens": huge}) == sizes
    assert count_load((huge, huge.view(-1)[:10_000_000])) == sizes
    assert list(chain(count_chunks([huge], 1) or ())) == [sizes]
