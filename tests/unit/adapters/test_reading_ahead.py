"""Reading ahead changes neither what is read nor where the iterator stands between two iterations."""

from collections.abc import Iterator

import pytest
import torch

from perseus_ds.adapters.input_size import ReadAhead
from perseus_ds.schedule import Load


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
