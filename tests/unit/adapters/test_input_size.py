"""A microbatch is counted by what it carries, and a tensor on a device is never read."""

from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from perseus_ds.adapters.input_size import ReadAhead, count_chunks, count_load
from perseus_ds.schedule import Load


@dataclass
class PackedSeqParams:
    """As megatron-core's: what flash-attn is called with."""

    qkv_format: str
    cu_seqlens_q: torch.Tensor
    max_seqlen_q: int


IDS = torch.zeros(2, 6, dtype=torch.long)
BOUNDARIES = torch.tensor([0, 3, 10, 12], dtype=torch.int32)
PACKED = Load(12.0, 9.0 + 49.0 + 4.0)
PARAMS, SQUARE = PackedSeqParams("thd", BOUNDARIES, 7), torch.ones(1, 1, 6, 6)
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]])
BATCHES: dict[str, tuple[Any, Load | None]] = {
    "a tensor": (IDS, Load(12.0, 72.0)),
    "inputs of a tuple": ((IDS, torch.zeros(2, 9)), Load(12.0, 72.0)),
    "a mapping": ({"input_ids": IDS, "labels": IDS}, Load(12.0, 72.0)),
    "padding shortens attention": ({"input_ids": IDS, "attention_mask": MASK}, Load(12.0, 40.0)),
    "a mask in bfloat16": ({"input_ids": IDS, "attention_mask": MASK.bfloat16()}, Load(12.0, 40.0)),
    "a mask of another kind": ({"input_ids": IDS, "attention_mask": SQUARE}, Load(12.0, 72.0)),
    "boundaries": ({"tokens": torch.zeros(1, 12), "cu_seqlens": BOUNDARIES}, PACKED),
    "boundaries padded at their end": ({"cu_seqlens": torch.tensor([[0, 3, 10, 12, 0, 0]])}, PACKED),
    "packed_seq_params": ({"tokens": IDS, "packed_seq_params": PARAMS}, PACKED),
    "lengths on the host": ((UserDict({"lengths": [3, 7, 2]}),), PACKED),
    "arguments and keywords": ([[], {"input_ids": IDS}], Load(12.0, 72.0)),
    "images": ({"pixel_values": torch.zeros(2, 3, 32, 32)}, Load(8.0, 32.0)),
    "images of two sizes": ({"images": [torch.zeros(3, 16, 16), torch.zeros(3, 16, 32)]}, Load(3.0, 5.0)),
    "patches": ({"input_ids": IDS[:1], "image_grid_thw": torch.tensor([[1, 2, 5]])}, Load(16.0, 136.0)),
    "boundaries in a tuple": ((torch.zeros(1, 12), torch.zeros(1, 12), BOUNDARIES), PACKED),
    "boundaries beside labels": (((torch.zeros(1, 12), BOUNDARIES), torch.zeros(1, 12)), PACKED),
    "boundaries of hidden states": ((torch.zeros(12, 5), BOUNDARIES[None]), PACKED),
    "not the boundaries of these tokens": ((torch.zeros(1, 13), BOUNDARIES), Load(13.0, 169.0)),
    "positions": ((IDS[:1], torch.arange(6)[None]), Load(6.0, 36.0)),
    "a mask in a tuple": ((IDS, MASK), Load(12.0, 72.0)),
    "a mask of no samples": ((torch.zeros(16), torch.ones(16, dtype=torch.long)), Load(16.0, 16.0)),
    "types of tokens": ((IDS, 1 - MASK), Load(12.0, 72.0)),
    "nothing": ({"loss_scale": 1.0}, None),
    "a number": (torch.tensor(3.0), None),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches_are_counted(case: str) -> None:
    batch, load = BATCHES[case]
    assert count_load(batch) == load


def test_what_lies_on_a_device_is_known_by_its_shape() -> None:
    """A meta tensor cannot be read at all: whoever tries fails."""
    device = {key: torch.zeros(1, 12, device="meta") for key in ("tokens", "cu_seqlens", "attention_mask")}
    assert count_load(device) == count_load(tuple(device.values())) == Load(12.0, 144.0)


def test_what_cannot_be_counted_is_not_a_load() -> None:
    nested: list[object] = [IDS]
    for _ in range(10):
        nested = [nested]
    for batch in ({"lengths": [3, -7]}, {"lengths": [float("nan")]}, nested):
        assert count_load(batch) is None


def test_a_whole_batch_is_counted_as_it_is_split() -> None:
    """Five rows in two microbatches: three and two, as `torch.tensor_split` gives them."""
    rows, lengths = torch.zeros(5, 4), {"lengths": torch.tensor([4, 4, 1, 4, 2])}
    assert count_chunks([rows, lengths], 2) == (Load(9.0, 33.0), Load(6.0, 20.0))
    assert count_chunks([rows], 2) == (Load(12.0, 48.0), Load(8.0, 32.0))
    assert count_chunks([], 2) is count_chunks([1.0], 2) is None


# Reading ahead changes neither what is read nor where the iterator stands between two iterations.


class Loader:
    """An iterator with a state that a checkpoint saves."""

    def __init__(self, lengths: list[int], *, fails_at: int | None = None) -> None:
        self.lengths, self.fails_at, self.at = lengths, fails_at, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        if self.at == self.fails_at:
            self.fails_at = None
            raise OSError("the file system is away")
        if self.at == len(self.lengths):
            raise StopIteration
        self.at += 1
        return torch.zeros(1, self.lengths[self.at - 1])

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}


def test_order_contents_and_state_are_those_of_the_iterator() -> None:
    lengths = [5, 7, 2, 9, 4, 4]
    plain, data = Loader(lengths), Loader(lengths)
    ahead = ReadAhead(data)
    for _ in range(2):
        begins = [next(plain).shape for _ in range(3)]
        assert ahead.loads(3) == tuple(Load(float(s[1]), float(s[1] ** 2)) for s in begins)
        assert [next(ahead).shape for _ in range(3)] == begins
        assert ahead.state_dict() == plain.state_dict()
    assert ahead.loads(3) is None
    with pytest.raises(StopIteration):
        next(ahead)


def test_an_error_comes_where_it_would_have_come() -> None:
    ahead = ReadAhead(Loader([5, 7, 2], fails_at=1))
    assert ahead.loads(3) is None
    assert next(ahead).shape == (1, 5)
    with pytest.raises(OSError, match="away"):
        next(ahead)
    assert [next(ahead).shape[1] for _ in range(2)] == [7, 2], "and it goes on where the iterator does"


def test_data_that_cannot_be_counted_are_read_all_the_same() -> None:
    ahead = ReadAhead(iter([1.0, 2.0]))
    assert ahead.loads(2) is None
    assert list(ahead) == [1.0, 2.0]
    assert ahead.reads(ahead)
