"""How ranks agree: rare shared objects, and a few numbers every iteration, off the training's groups."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from perseus_ds.errors import EngineError, PerseusError, as_perseus_error
from perseus_ds.runtime.comm.refusals import joint_refusal

T = TypeVar("T")

_PATIENCE_S = 120.0
_LAST_PATIENCE_S = 0.5

FAILED = 0
"""Where the numbers say whether some rank has failed: who has will not come to meet the others."""

MOST, FEWEST = 3, 4
"""Where they say how many microbatches a rank's batch has, and the same negative: the greatest of all."""


class ControlChannel:
    """All ranks of the job over one gloo group of our own.

    ``post`` and ``collect`` are one iteration apart, so that the exchange happens while training goes on;
    every rank collects the same numbers at the same iteration, and decides alike without a leader.
    """

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._patience = timedelta(seconds=patience_s)
        self._group = dist.new_group(backend="gloo", timeout=self._patience) if self.size > 1 else None
        self._backend = self._group and self._group._get_backend(torch.device("cpu"))  # noqa: SLF001  # see post
        self._greatest = dist.AllreduceOptions()
        self._greatest.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]  # torch's stub is too narrow
        self._work: dist.Work | None = None
        self._numbers: NDArray[np.float64] = np.empty(0)
        self._tensor = torch.empty(0)
        self._posted = False

    def gather(self, mine: object) -> list[object]:
        """Give every rank what every rank has; blocks, for rare moments only.

        Raises:
            EngineError: some rank has failed, runs other batches, or did not answer in time.
        """
        if self._group is None:
            return [mine]
        self._see_all_well()
        everyone: list[object] = [None] * self.size
        try:
            dist.all_gather_object(everyone, mine, group=self._group)
        except RuntimeError as error:
            raise _silent("gathering", error) from error
        return everyone

    def broadcast(self, thing: object) -> object:
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

    def gather_results(self, act: Callable[[], T]) -> list[T]:
        """Do something on every rank and gather what came of it; what fails on one fails on all.

        Raises:
            PerseusError: the first failure, alike on all ranks, with the ranks that had it.
            EngineError: a rank fell silent.
        """
        mine: T | None = None
        failed: PerseusError | None = None
        try:
            mine = act()
        except Exception as error:  # noqa: BLE001  # the others wait for this rank: whatever it is, they hear
            failed = as_perseus_error(error)
        everyone = cast("list[tuple[T, PerseusError | None]]", self.gather((mine, failed)))
        refusals = {rank: one for rank, (_, one) in enumerate(everyone) if one is not None}
        if refusals:
            raise joint_refusal(refusals, ranks=self.size) from failed
        return [result for result, _ in everyone]

    def broadcast_result(self, act: Callable[[], T]) -> T:
        """Do something on rank 0 and give every rank what came of it, its failure included.

        Raises:
            PerseusError: rank 0's failure.
            EngineError: a rank fell silent.
        """
        made: object = None
        if self.rank == 0:
            try:
                made = act()
            except Exception as error:  # noqa: BLE001  # the others wait for rank 0
                made = as_perseus_error(error)
        made = self.broadcast(made)
        if isinstance(made, PerseusError):
            raise made
        return cast("T", made)

    def post(self, numbers: NDArray[np.float64]) -> None:
        """Send this rank's numbers on their way; of each place the greatest of all ranks comes back.

        What was posted before must have been collected; the length never changes. Asked of gloo itself, past
        the dispatcher of torch.distributed, which costs a third of it.

        Cost: one vector on the wire, whatever the number of ranks; about 0.1 ms on the training thread.
        """
        if not self._posted:
            self._numbers = np.empty(len(numbers))
            self._tensor = torch.from_numpy(self._numbers)
            self._posted = True
        self._numbers[:] = numbers
        if self._backend is None:
            return
        try:
            self._work = self._backend.allreduce([self._tensor], self._greatest)
        except RuntimeError as error:
            raise _silent("posting", error) from error

    def collect(self, *, patience_s: float | None = None) -> NDArray[np.float64] | None:
        """Return the greatest of what all ranks posted last, place by place; None before the first post.

        Raises:
            EngineError: some rank did not post in time.
        """
        if not self._posted:
            return None
        if self._work is not None:
            self._wait(self._work, patience_s)
            self._work = None
        return self._numbers.copy()

    def _wait(self, work: dist.Work, patience_s: float | None) -> None:
        try:
            work.wait(self._patience if patience_s is None else timedelta(seconds=patience_s))
        except RuntimeError as error:
            raise _silent("exchanging", error) from error

    def someone_failed(self) -> bool:
        """Whether the numbers posted last, when all are here, report a failure."""
        numbers = self.collect()
        return numbers is not None and bool(numbers[FAILED])

    def close(self) -> None:
        """Let the last exchange end before the process does; one that hangs is left to die with it.

        Destroying a group waits for all that is under way in it, for minutes where a rank hangs, and a
        thread of it that lets go of a tensor while the interpreter is being taken down aborts the process.
        What is still under way is therefore never destroyed.
        """
        try:
            self.collect(patience_s=_LAST_PATIENCE_S)
        except EngineError:
            if self._work is not None and not self._work.is_completed():
                for thing in (self._group, self._backend, self._work, self._tensor, self._numbers):
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))

    def _see_all_well(self) -> None:
        """Meet nobody who does not come: not who has failed, and not whose iteration is another one."""
        if self.someone_failed():
            raise EngineError("another rank of the job reported an error, see its log")
        if (
            self._posted
            and np.isfinite(self._numbers[MOST])
            and self._numbers[MOST] != -self._numbers[FEWEST]
        ):
            raise EngineError(different_sizes(int(-self._numbers[FEWEST]), int(self._numbers[MOST])))


def different_sizes(fewest: int, most: int) -> str:
    """Say that ranks train batches of different sizes."""
    return f"ranks train batches of {fewest} and of {most} microbatches at once, which no plan fits"


def _silent(doing: str, error: RuntimeError) -> EngineError:
    return EngineError(f"a rank fell silent while {doing}: {str(error).splitlines()[0]}")
