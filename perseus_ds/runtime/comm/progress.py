"""What replicas report to each other within an iteration: numbers at each mark, off training's groups."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from perseus_ds.errors import SilentRankError
from perseus_ds.straggler import Outlook

_PATIENCE_S = 5.0
_VIRTUAL_PATIENCE_S = (15.0, 120.0)  # from an iteration's begin: at least, and at most
_LEAST_S = 0.01  # works take whole milliseconds, and none at all for "as long as the group's"
_WAITED_S = 0.0005
_LOOK_EVERY_S = 0.00005
_ROWS = 3  # elapsed, left, error


class ProgressExchange:
    """One all-reduce for every mark of an iteration; each replica's speaker writes its own places.

    Of each place the greatest of all ranks comes back. All ranks take part in every one. A rank with nothing
    to report does so at once, so that none waits for more than the reporting ranks. ``waits``: on devices of
    which time passes only while they are used, reports are waited for. Else they are looked for and never
    waited for within an iteration, but for half a millisecond at its begin.

    Shape: ``marks`` vectors [3 x replicas]; minus infinity where nothing is reported.
    """

    def __init__(
        self, group: dist.ProcessGroup, *, marks: int, replicas: int, replica: int, waits: bool
    ) -> None:
        self._group = group
        self._greatest = dist.AllreduceOptions()
        self._greatest.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]  # torch's stub is too narrow
        self._numbers = [np.full(_ROWS * replicas, -np.inf) for _ in range(marks)]
        self._tensors = [torch.from_numpy(numbers) for numbers in self._numbers]
        self._works: list[dist.Work] = []
        self._places = slice(replica, _ROWS * replicas, replicas)
        self._replicas = replicas
        self._waits = waits
        self._began_s, self._longest_s = time.monotonic(), 0.0

    @property
    def told(self) -> int:
        """How many marks of this iteration this rank has reported."""
        return len(self._works)

    def begin(self) -> None:
        """Forget the iteration before; all of it was taken."""
        before_s, self._began_s = self._began_s, time.monotonic()
        self._longest_s = max(self._longest_s, self._began_s - before_s)
        self._works.clear()

    def tell(self, elapsed_s: float = -np.inf, left_s: float = -np.inf, error: float = -np.inf) -> None:
        """Report the next mark; a value that is not a number is left out.

        Cost: about 0.05 ms on the training thread.

        Raises:
            SilentRankError: the others cannot be reached.
        """
        mark = len(self._works)
        self._numbers[mark][:] = -np.inf
        self._numbers[mark][self._places] = np.nan_to_num(
            (elapsed_s, left_s, error), nan=-np.inf, posinf=-np.inf, neginf=-np.inf
        )
        self._doing(lambda: self._works.append(self._group.allreduce([self._tensors[mark]], self._greatest)))

    def arrived(self, mark: int) -> bool:
        """Whether all have reported a mark.

        Raises:
            SilentRankError: some rank has not in time, where that is waited for.
        """
        if mark >= len(self._works):
            return False
        if self._waits:
            self.take(mark)
        elif mark == 0:
            until_s = time.monotonic() + _WAITED_S
            while not self._works[0].is_completed() and time.monotonic() < until_s:
                time.sleep(_LOOK_EVERY_S)
        return bool(self._works[mark].is_completed())

    def take(self, mark: int) -> NDArray[np.float64]:
        """Return what all have reported at a mark; waits for it.

        Shape: [3, replicas].

        Raises:
            SilentRankError: some rank did not report in time.
        """
        patience = timedelta(seconds=self._patience_s())
        self._doing(lambda: self._works[mark].wait(patience))
        return self._numbers[mark].reshape(_ROWS, self._replicas).copy()

    def _patience_s(self) -> float:
        """How long to wait from now on.

        Where marks are waited for within an iteration, one rank's wait holds up the next rank's. So all count
        from the iteration's begin, and waits do not add up along a pipeline. The limit is twice the longest
        time between two begins so far.
        """
        if not self._waits:
            return _PATIENCE_S
        least_s, most_s = _VIRTUAL_PATIENCE_S
        patience_s = min(most_s, max(least_s, 2.0 * self._longest_s))
        return max(_LEAST_S, self._began_s + patience_s - time.monotonic())

    def close(self) -> None:
        """Leave what hangs to die with the process, as `ControlChannel.close` does."""
        if any(not work.is_completed() for work in self._works):
            for thing in (self._group, self._works, self._tensors, self._numbers):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))

    @staticmethod
    def _doing(act: Callable[[], object]) -> None:
        try:
            act()
        except RuntimeError as error:
            first = str(error).splitlines()[0]
            raise SilentRankError(f"a rank fell silent while reporting its progress: {first}") from error


def outlook_of(numbers: NDArray[np.float64], usual_s: NDArray[np.float64], usual_error: float) -> Outlook:
    """Read the reports of a mark: a replica that reports nothing by loads has the usual time left.

    Shape: ``numbers`` [3, replicas], ``usual_s`` [replicas].
    """
    elapsed_s, left_s, error = numbers
    by_load = np.isfinite(left_s)
    return Outlook(
        elapsed_s, np.where(by_load, left_s, usual_s), np.where(by_load, error, usual_error), by_load
    )
