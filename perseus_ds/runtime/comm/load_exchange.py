"""How long each replica's iteration will take, exchanged when it begins, off training's groups."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from perseus_ds.errors import SilentRankError

T = TypeVar("T")

_PATIENCE_S, _VIRTUAL_PATIENCE_S = 5.0, 60.0
_WAITED_S = 0.0005
_LOOK_EVERY_S = 0.00005


class LoadExchange:
    """One all-reduce for each iteration, in which each replica's speaker writes its own place.

    Of each place the greatest of all ranks comes back, so that a rank with nothing to report takes part with
    minus infinity. ``waits``: on devices of which time passes only while they are used, the others are waited
    for when an iteration begins. Else for half a millisecond; the iteration goes on without.

    Shape: a vector [replicas].
    """

    def __init__(self, group: dist.ProcessGroup, *, replicas: int, replica: int, waits: bool) -> None:
        self._group = group
        self._greatest = dist.AllreduceOptions()
        self._greatest.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]  # torch's stub is too narrow
        self._numbers = np.full(replicas, -np.inf)
        self._tensor = torch.from_numpy(self._numbers)
        self._replica, self._waits = replica, waits
        self._work: dist.Work | None = None
        self._looked = False

    def begin(self, predicted_s: float | None) -> None:
        """Report how long this rank's replica will take; None is nothing to report.

        An iteration that broke off leaves its exchange behind, which is waited for: gloo aborts the process
        where work that is under way is destroyed.

        Cost: about 0.05 ms on the training thread.

        Raises:
            SilentRankError: the others cannot be reached.
        """
        if self._work is not None:
            self.take()
        self._numbers[:] = -np.inf
        if predicted_s is not None and np.isfinite(predicted_s):
            self._numbers[self._replica] = predicted_s
        self._work, self._looked = None, False
        self._work = _reached(lambda: self._group.allreduce([self._tensor], self._greatest))

    def arrived(self) -> bool:
        """Whether all have reported; waits a little when it is asked first.

        Raises:
            SilentRankError: some rank has not in time, where that is waited for.
        """
        if self._work is None:
            return False
        if self._waits:
            self._wait(_VIRTUAL_PATIENCE_S)
        elif not self._looked:
            until_s = time.monotonic() + _WAITED_S
            while not self._work.is_completed() and time.monotonic() < until_s:
                time.sleep(_LOOK_EVERY_S)
        self._looked = True
        return bool(self._work.is_completed())

    def take(self) -> NDArray[np.float64]:
        """Return what all have reported; waits for it. Not finite where a replica reported nothing.

        Raises:
            SilentRankError: some rank did not report in time.
        """
        self._wait(_VIRTUAL_PATIENCE_S if self._waits else _PATIENCE_S)
        return self._numbers.copy()

    def close(self) -> None:
        """Leave what hangs to die with the process, as `ControlChannel.close` does."""
        if self._work is not None and not self._work.is_completed():
            for thing in (self._group, self._work, self._tensor, self._numbers):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))

    def _wait(self, patience_s: float) -> None:
        work = self._work
        assert work is not None
        _reached(lambda: work.wait(timedelta(seconds=patience_s)))


def _reached(act: Callable[[], T]) -> T:
    try:
        return act()
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise SilentRankError(f"a rank fell silent while reporting its loads: {first}") from error
