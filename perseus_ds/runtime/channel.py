"""Agreement of ranks: rare shared objects, and a few numbers every iteration, off the training's groups."""

from __future__ import annotations

import ctypes
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo, _get_default_store

from perseus_ds.errors import EngineError, PerseusError, SilentRankError, as_perseus_error
from perseus_ds.runtime.reach import VARIABLE, Reach
from perseus_ds.schedule import Load
from perseus_ds.straggler.pacing import Forecast
from perseus_ds.straggler.replica_plans import ReplicaPlans

# The gloo group that carries our control traffic: beside the training's groups, with few connections.
#
# torch.distributed does not know it: it is made over the job's key-value store under a name of its own. It
# takes no part in the order in which a framework makes its groups, and leaves nothing behind in their
# registry.


def control_group(
    name: str, reach: Reach, *, patience: timedelta, at_once: bool = False
) -> dist.ProcessGroup:
    """Make the group of all ranks, in no step with them: a rank that has something for another connects then.

    ``at_once``: every rank connects to every other now. A lazy connection makes a message wait until its
    receiver asks for it.

    Its collectives go round a ring and along trees. A rank has at most ``2 + log2(ranks)`` connections, where
    a group of torch.distributed has one to every other rank. ``name`` is alike on all ranks and used once.

    Raises:
        SilentRankError: no address to listen at, or the store does not answer.
    """
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001  # not in torch's stub
    options._timeout = patience  # noqa: SLF001
    try:
        options._devices = [_device(reach, lazy=not at_once)]  # noqa: SLF001
        own = PrefixStore(f"{name}/gloo", _get_default_store())
        group = ProcessGroupGloo(own, dist.get_rank(), dist.get_world_size(), options)
    except RuntimeError as error:
        raise SilentRankError(
            f"no control traffic between ranks: {str(error).splitlines()[0]}",
            hint=f"{VARIABLE} names the interface that leads to the other hosts",
        ) from error
    return cast("dist.ProcessGroup", group)  # its collectives, which torch's stub of it leaves out


def _device(reach: Reach, *, lazy: bool) -> ProcessGroupGloo.Device:
    """Listen at the interface, else at the address, else where gloo chooses.

    Over a ``lazy`` device ranks connect when one has something for another.
    """
    create: Callable[..., ProcessGroupGloo.Device] = ProcessGroupGloo.create_device
    if reach.interface:
        where = {"interface": reach.interface}
    elif reach.address:
        where = {"hostname": reach.address}
    else:
        create, where = ProcessGroupGloo.create_default_device, {}
    try:
        return create(**where, lazy_init=lazy)
    except TypeError:  # torch before 2.7: every rank connects to every other at once
        return create(**where)


# Name the ranks that refuse: a job is served on all of its ranks or on none, and all give one reason.

_NAMED = 8  # ranks in a line: the others are counted


def joint_refusal(refusals: Mapping[int, PerseusError], *, ranks: int) -> PerseusError:
    """Return the refusal of the lowest rank, naming all that gave the same one, unless all ``ranks`` did."""
    first = refusals[min(refusals)]
    alike = sorted(rank for rank, one in refusals.items() if str(one) == str(first))
    if len(alike) == ranks:
        return first
    return type(first)(f"{ranks_in_words(alike)}: {first.message}", hint=first.hint)


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Name ranks, and count those beyond the first few."""
    beyond = len(ranks) - _NAMED
    named = ", ".join(map(str, ranks[:_NAMED]))
    return f"rank {named}" if beyond <= 0 else f"rank {named} and {beyond} more"


T = TypeVar("T")

_PATIENCE_S = 120.0
_LAST_PATIENCE_S = 0.5
_FIRST_PATIENCE_S = 30.0  # all have met a moment ago
_LARGE_JOB = 512  # ranks: their group is made over one store, so that larger ones take longer
_SETTLED_PATIENCE = timedelta(seconds=30.0)  # all were here a moment ago, and rank 0 may have files to read
_SILENCE_S = 5.0  # a number that all ranks have sent, and that has not come by then, does not come
_NONE = timedelta(milliseconds=1)  # what was waited for in vain is looked for, and not waited for again

FAILED = 0
"""Place of the number of a failed rank, which will not come to meet the others."""

MOST, FEWEST = 3, 4
"""Place of how many microbatches a rank's batch has, and the same negative: the greatest of all."""


class ControlChannel:
    """All ranks of the job over one gloo group of our own, named alike on all of them.

    ``post`` and ``collect`` are one iteration apart, so that the exchange happens while training goes on.
    Every rank collects the same numbers at the same iteration, and decides alike without a leader.
    """

    def __init__(
        self, name: str = "perseus/control", reach: Reach | None = None, *, patience_s: float = _PATIENCE_S
    ) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.name, self.reach = name, reach or Reach()
        self._patience = timedelta(seconds=patience_s)
        self._posted_s = self._iteration_s = 0.0
        self._group = control_group(name, self.reach, patience=self._patience) if self.size > 1 else None
        self._greatest = dist.AllreduceOptions()
        self._greatest.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]  # torch's stub is too narrow
        self._work: dist.Work | None = None
        self._numbers: NDArray[np.float64] = np.empty(0)
        self._tensor = torch.empty(0)
        self._posted = self._in_vain = False
        self._side: ControlChannel | None = None

    def connect(self, patience_s: float | None = None) -> None:
        """Have a number come round: whether ranks reach each other is known before anything depends on it.

        Raises:
            EngineError: no number comes back.
        """
        if patience_s is None:
            patience_s = _FIRST_PATIENCE_S * max(1.0, self.size / _LARGE_JOB)
        try:
            self.post(np.zeros(1))
            self.collect(patience_s=patience_s)
        except SilentRankError as error:
            where = self.reach.interface or self.reach.address or "an address that gloo has chosen"
            raise EngineError(
                f"control traffic between the ranks did not get through within {patience_s:.0f} s (this rank "
                f"listens at {where})",
                hint="does a firewall let only the master's port through? Ranks need any port of each other; "
                f"{VARIABLE} names another interface",
            ) from error
        self._posted = False

    def settle(self) -> None:
        """Wait less from now on: all ranks are in step."""
        self._patience, self._posted_s = _SETTLED_PATIENCE, time.monotonic()

    def side(self) -> ControlChannel:
        """Return a second channel of all ranks, for reports when iterations begin; closed with this one."""
        if self._side is None:
            patience_s = self._patience.total_seconds()
            self._side = ControlChannel(f"{self.name}/loads", self.reach, patience_s=patience_s)
        return self._side

    def gather(self, mine: T, *, to_first: bool = False) -> list[T]:
        """Give every rank, or rank 0 alone, what every rank has; blocks, for rare moments only.

        Returns: nothing on ranks that get nothing.

        Raises:
            EngineError: some rank has failed, or runs other batches.
            SilentRankError: some rank did not answer in time.
        """
        if self._group is None:
            return [mine]
        self._see_all_well()
        own = _to_tensor(mine)
        try:
            sizes = [int(size) for size in self._all(torch.tensor([len(own)]))]
            padded = torch.nn.functional.pad(own, (0, max(sizes) - len(own)))
            if to_first:
                received = [torch.empty_like(padded) for _ in sizes] if self.rank == 0 else []
                self._come(self._group.gather([received] if received else [], [padded]), padded, received)
            else:
                received = self._all(padded)
        except RuntimeError as error:
            raise _silent("gathering", error) from error
        return [cast("T", _from_tensor(one[:size])) for one, size in zip(received, sizes, strict=False)]

    def _all(self, mine: torch.Tensor) -> list[torch.Tensor]:
        """Return what every rank has in a tensor of this shape."""
        assert self._group is not None
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        self._come(self._group.allgather([everyone], [mine]), everyone, mine)
        return everyone

    def _come(self, work: dist.Work, *used: object) -> None:
        """Wait for an exchange; ``used`` is what it reads and writes."""
        try:
            work.wait(self._patience)
        except RuntimeError:
            self._keep(work, *used)
            raise

    def _keep(self, work: dist.Work, *used: object) -> None:
        """Note that an exchange failed; while gloo works on, what it uses must never be destroyed."""
        self._in_vain = True
        if not work.is_completed():
            for thing in (self._group, work, *used):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))

    def broadcast(self, thing: T) -> T:
        """Give every rank what rank 0 has; blocks, for rare moments only.

        Raises:
            EngineError: some rank has failed.
            SilentRankError: some rank did not answer in time.
        """
        if self._group is None:
            return thing
        self._see_all_well()
        own = _to_tensor(thing if self.rank == 0 else None)
        try:
            size = torch.tensor([len(own)])
            self._come(self._group.broadcast([size]), size)
            packed = own if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
            self._come(self._group.broadcast([packed]), packed)
            got = torch.zeros(1)
            self._come(self._group.allreduce([got]), got)  # rank 0 waits with those who have not got it
        except RuntimeError as error:
            raise _silent("broadcasting", error) from error
        return cast("T", _from_tensor(packed))

    def gather_results(self, act: Callable[[], T]) -> list[T]:
        """Do something on every rank and gather what came of it; what fails on one fails on all.

        Raises:
            PerseusError: the first failure, alike on all ranks, with the ranks that had it.
            SilentRankError: a rank fell silent.
        """
        mine: T | None = None
        failed: PerseusError | None = None
        try:
            mine = act()
        except Exception as error:  # noqa: BLE001  # the others wait for this rank: whatever it is, they hear
            failed = as_perseus_error(error)
        everyone = self.gather((mine, failed))
        refusals = {rank: one for rank, (_, one) in enumerate(everyone) if one is not None}
        if refusals:
            raise joint_refusal(refusals, ranks=self.size) from failed
        return [cast("T", result) for result, _ in everyone]

    def broadcast_result(self, act: Callable[[], T]) -> T:
        """Do something on rank 0 and give every rank what came of it, its failure included.

        Raises:
            PerseusError: rank 0's failure.
            SilentRankError: a rank fell silent.
        """
        made: T | PerseusError | None = None
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

        What was posted before must have been collected; the length never changes.

        Cost: one vector on the wire, whatever the number of ranks; about 0.1 ms on the training thread.
        """
        if not self._posted:
            self._numbers = np.empty(len(numbers))
            self._tensor = torch.from_numpy(self._numbers)
            self._posted = True
        self._numbers[:] = numbers
        if self._group is None:
            return
        now_s = time.monotonic()
        self._posted_s, self._iteration_s = now_s, now_s - self._posted_s
        try:
            self._work = self._group.allreduce([self._tensor], self._greatest)
        except RuntimeError as error:
            raise _silent("posting", error) from error

    @property
    def has_come(self) -> bool:
        """True once all ranks have posted what is to be collected next."""
        return self._work is None or bool(self._work.is_completed())

    def collect(self, *, patience_s: float = _SILENCE_S) -> NDArray[np.float64] | None:
        """Return the greatest of what all ranks posted last, place by place; None before the first post.

        Raises:
            SilentRankError: some rank did not post in time.
        """
        if not self._posted:
            return None
        if self._work is not None:
            try:
                self._work.wait(_NONE if self._in_vain else timedelta(seconds=patience_s))
            except RuntimeError as error:
                self._keep(self._work, self._tensor, self._numbers)
                raise _silent("exchanging", error) from error
            self._work = None
        return self._numbers.copy()

    def close(self) -> None:
        """Let the last exchange end before the process does, and the group with it.

        Destroying a group waits for all that is under way in it, for minutes where a rank hangs. A thread of
        it that lets go of a tensor while the interpreter is being taken down aborts the process. What is
        still under way is therefore never destroyed, and what is not is destroyed here.
        """
        if self._side is not None:
            self._side.close()
        with suppress(EngineError):
            self.collect(patience_s=_LAST_PATIENCE_S)
        self._group = None

    def _see_all_well(self) -> None:
        """Return early if any rank has failed or is at a different iteration, instead of waiting for it.

        Ranks end an iteration up to one iteration apart.
        """
        numbers = self.collect(patience_s=_SILENCE_S + self._iteration_s)
        if numbers is None:
            return
        if numbers[FAILED]:
            raise EngineError("another rank of the job reported an error, see its log")
        most, fewest = numbers[MOST], -numbers[FEWEST]
        if np.isfinite(most) and most != fewest:
            raise EngineError(different_sizes(int(fewest), int(most)))


def different_sizes(fewest: int, most: int) -> str:
    """Report that ranks train batches of different sizes."""
    return f"ranks train batches of {fewest} and of {most} microbatches at once, which no plan fits"


def _silent(doing: str, error: RuntimeError) -> SilentRankError:
    return SilentRankError(f"a rank fell silent while {doing}: {str(error).splitlines()[0]}")


def _to_tensor(thing: object) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(thing)), dtype=torch.uint8)


def _from_tensor(packed: torch.Tensor) -> object:
    return pickle.loads(packed.numpy().tobytes())  # noqa: S301  # from a rank of this job, as torch's own


# This rank's part in pacing replicas by loads: predict, exchange predictions, choose plans by all of them.

_LOADS_PATIENCE_S, _VIRTUAL_PATIENCE_S = 5.0, 60.0
_WAITED_S = 0.0005
_LOOK_EVERY_S = 0.00005


class IterationPacer:
    """Exchanges the replicas' predictions when an iteration begins, and chooses their plans by them.

    Over the ``channel`` each replica's reporting rank (it ``speaks``) posts its own place; ranks with nothing
    to report post minus infinity. ``waits``: on devices of which time passes only while they are used, the
    others are waited for when an iteration begins. Else for half a millisecond, and no longer.

    All ranks take in the reports of an iteration when it ends at the latest, so that all keep the same
    `ReplicaPlans`. An iteration in which ranks are lost goes on as it was; they are reported when it `ends`.
    """

    def __init__(
        self,
        replica_plans: ReplicaPlans,
        channel: ControlChannel,
        forecast: Forecast,
        *,
        replicas: int,
        replica: int,
        waits: bool,
        speaks: bool,
    ) -> None:
        self._replica_plans, self._channel, self._forecast = replica_plans, channel, forecast
        self._blank = np.full(replicas, -np.inf)
        self._replica, self._waits, self._speaks = replica, waits, speaks
        self._patience_s = _VIRTUAL_PATIENCE_S if waits else _LOADS_PATIENCE_S
        self._looked = False
        self._index: int | None = None
        self._lost: EngineError | None = None

    def begins(self, index: int, loads: Sequence[Load] | None) -> None:
        """Report how long iteration ``index`` will take, where the loads of its microbatches are known.

        An iteration that broke off has left its exchange behind, which is waited for.

        Cost: about 0.05 ms on the training thread.
        """
        numbers = self._blank.copy()
        if self._speaks and loads is not None and len(loads) == self._forecast.microbatches:
            numbers[self._replica] = self._forecast.of(loads)
        self._index, self._looked = index, False
        try:
            self._channel.collect(patience_s=self._patience_s)
            self._channel.post(numbers)
        except EngineError as error:
            self._lost, self._index = error, None

    def changes(self) -> bool:
        """Return whether the reports of all replicas change a plan from now on; once."""
        if self._index is None:
            return False
        try:
            return self._all_reported() and self._take(self._index)
        except EngineError as error:
            self._lost, self._index = error, None
            return False

    def ends(self) -> None:
        """Take in the reports that came too late to be followed.

        Raises:
            EngineError: some rank did not report in time.
        """
        if self._lost is not None:
            raise self._lost
        if self._index is not None:
            self._take(self._index)

    def _all_reported(self) -> bool:
        """Return whether all have reported; waits a little when it is asked first."""
        if not (self._waits or self._looked):
            until_s = time.monotonic() + _WAITED_S
            while not self._channel.has_come and time.monotonic() < until_s:
                time.sleep(_LOOK_EVERY_S)
        self._looked = True
        return self._waits or self._channel.has_come

    def _take(self, index: int) -> bool:
        """Wait for what all have reported, and pace by it."""
        self._index = None
        numbers = self._channel.collect(patience_s=self._patience_s)
        return numbers is not None and self._replica_plans.pace(index, numbers)
