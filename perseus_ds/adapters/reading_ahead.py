"""Read an iteration's microbatches from the data iterator before it begins, so that its loads are known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from perseus_ds.adapters.counting import counted
from perseus_ds.schedule import Load


class ReadAhead:
    """A data iterator with what was read of it and not yet asked for.

    Whoever reads it gets the same things in the same order. An iteration takes what was read for it. So
    between two iterations the iterator stands where it would without us: a checkpoint saves the same state.
    Whatever else it is asked for is the iterator's own.
    """

    def __init__(self, data: Iterator[object]) -> None:
        self.data = data
        self._read: deque[object] = deque()
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        if self._read:
            return self._read.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return next(self.data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.data, name)

    @property
    def is_empty(self) -> bool:
        """Whether everything that was read was asked for."""
        return not self._read and self._error is None

    def reads(self, data: object) -> bool:
        """Whether this is the iterator that is read here, or this object itself."""
        return data is self or data is self.data

    def loads(self, microbatches: int) -> tuple[Load, ...] | None:
        """Read so many microbatches and count them; None where the data end before, or cannot be counted.

        What the iterator raises is raised to the one who asks for the microbatch that it was raised for.
        """
        while len(self._read) < microbatches and self._error is None:
            try:
                self._read.append(next(self.data))
            except Exception as error:  # noqa: BLE001  # the host's own: it is raised where it would have been
                self._error = error
        if len(self._read) < microbatches:
            return None
        found = tuple(load for load in map(counted, list(self._read)[:microbatches]) if load is not None)
        return found if len(found) == microbatches else None
