"""The job in batches of every size that has trained: each its own schedule, joined once from all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from perseus_ds.errors import PerseusError
from perseus_ds.runtime.adapter import Adapter, Batch, Place
from perseus_ds.runtime.comm.control_channel import ControlChannel
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job

Joined = Callable[[Job], None]

MOST = 4
"""Sizes that are served: a profile, plans and figures of many more would never settle."""


class BatchSizes:
    """What is known of every number of microbatches: this rank's place, and the job once it is joined.

    A rank meets a new size by itself and notes its own order. It is joined when all ranks know that all of
    them ran it (`JobStatus.microbatches`): no rank waits for one that runs something else. Until then, where
    the orders make no schedule, and beyond ``MOST`` sizes, such batches run at default clocks and count for
    nothing.
    """

    def __init__(self, adapter: Adapter, job: Job, *, channel: ControlChannel, log: EventLog) -> None:
        self._adapter = adapter
        self._first = job
        self._channel = channel
        self._log = log
        self._jobs: dict[int, Job | None] = {job.schedule.microbatches: job}
        self._places: dict[int, Place | PerseusError] = {}
        self._joined: list[Joined] = []
        self._loads_known: dict[int, bool] = {}

    def on_joined(self, act: Joined) -> None:
        """Have something done with every job that is joined from now on."""
        self._joined.append(act)

    @property
    def several(self) -> bool:
        """Whether batches of more than one size have trained: lines then name which are meant."""
        return len(self._jobs) > 1

    def meet(self, batch: Batch) -> Job | None:
        """Return the job in batches of this size, None where it is not known yet or cannot be served.

        Cost: a look-up, but for the first time.
        """
        size = batch.microbatches
        self._loads_known[size] = batch.loads is not None
        if size not in self._jobs and size not in self._places and not self._full:
            try:
                self._places[size] = self._adapter.place()
            except PerseusError as error:
                self._places[size] = error
        return self._jobs.get(size)

    def loads_known(self, microbatches: int) -> bool:
        """Whether this rank knew the loads of the last batch of a size before it began."""
        return self._loads_known.get(microbatches, False)

    def join(self, microbatches: int) -> Job | None:
        """Join a size that all ranks have met; collective the first time.

        Raises:
            SilentRankError: a rank fell silent.
        """
        if microbatches in self._jobs:
            return self._jobs[microbatches]
        if self._full:
            self._log.event_once(
                "batch_size_refused",
                f"batches of more than {MOST} numbers of microbatches: others than the first {MOST} run at "
                "default clocks",
                microbatches=microbatches,
            )
            return None
        everyone = cast("list[Place | PerseusError]", self._channel.gather(self._places[microbatches]))
        self._jobs[microbatches] = self._job_of(microbatches, everyone)
        return self._jobs[microbatches]

    @property
    def _full(self) -> bool:
        """Whether no further size is served; alike on all ranks once all have joined a size."""
        return len(self._jobs) >= MOST

    def _job_of(self, microbatches: int, everyone: list[Place | PerseusError]) -> Job | None:
        """Pure, and so alike on all ranks."""
        try:
            for one in everyone:
                if isinstance(one, PerseusError):
                    raise one
            places = [one for one in everyone if isinstance(one, Place)]
            schedule = self._adapter.schedule(places)
        except PerseusError as error:
            self._log.event(
                "batch_size_refused",
                f"batches of {microbatches} microbatches run at default clocks: {error}",
                microbatches=microbatches,
            )
            return None
        job = self._first.with_schedule(schedule, places[self._first.rank].left_out)
        for act in self._joined:
            act(job)
        self._log.event("batch_size", microbatches=microbatches, fingerprint=dict(job.fingerprint))
        return job
