"""How ranks agree: rare shared objects, and a few numbers every iteration, off the training's groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from perseus_ds.errors import EngineError

_PATIENCE_S = 120.0


class Council:
    """All ranks of the job over one gloo group of our own.

    ``post`` and ``collect`` are one iteration apart, so that the exchange happens while training goes on;
    every rank collects the same numbers at the same iteration, and decides alike without a leader. The
    first number says whether its rank has failed: who has will not come to meet the others.
    """

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._patience = timedelta(seconds=patience_s)
        self._group = dist.new_group(backend="gloo", timeout=self._patience) if self.size > 1 else None
        self._work: dist.Work | None = None
        self._seats: list[torch.Tensor] = []

    def share(self, mine: object) -> list[object]:
        """Give every rank what every rank has; blocks, for rare moments only.

        Raises:
            EngineError: some rank has failed, or did not answer in time.
        """
        if self._group is None:
            return [mine]
        self._see_all_well()
        everyone: list[object] = [None] * self.size
        try:
            dist.all_gather_object(everyone, mine, group=self._group)
        except RuntimeError as error:
            raise _silent("sharing", error) from error
        return everyone

    def tell(self, thing: object) -> object:
        """Give every rank what rank 0 has; blocks, for rare moments only.

        Raises:
            EngineError: some rank has failed, or did not answer in time.
        """
        if self._group is None:
            return thing
        self._see_all_well()
        box = [thing]
        try:
            dist.broadcast_object_list(box, src=0, group=self._group)
        except RuntimeError as error:
            raise _silent("broadcasting", error) from error
        return box[0]

    def post(self, numbers: Sequence[float]) -> None:
        """Send this rank's numbers on their way.

        Cost: tens of microseconds on the training thread.
        """
        mine = torch.tensor(numbers, dtype=torch.float64)
        if self._group is None:
            self._seats = [mine]
            return
        self._seats = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            self._work = dist.all_gather(self._seats, mine, group=self._group, async_op=True)
        except RuntimeError as error:
            raise _silent("posting", error) from error

    def collect(self) -> NDArray[np.float64] | None:
        """Return what all ranks posted last, a row each; None before the first post.

        Raises:
            EngineError: some rank did not post in time.
        """
        if not self._seats:
            return None
        if self._work is not None:
            try:
                self._work.wait(self._patience)
            except RuntimeError as error:
                raise _silent("exchanging", error) from error
        return np.stack([seat.numpy() for seat in self._seats])

    def someone_failed(self) -> bool:
        """Whether the numbers posted last, when all are here, tell of a failure."""
        numbers = self.collect()
        return numbers is not None and bool(numbers[:, 0].any())

    def _see_all_well(self) -> None:
        if self.someone_failed():
            raise EngineError("another rank of the job reported an error, see its log")


def _silent(doing: str, error: RuntimeError) -> EngineError:
    return EngineError(f"a rank fell silent while {doing}: {str(error).splitlines()[0]}")
