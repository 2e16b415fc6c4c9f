"""Ask for clocks from the training thread without ever waiting: last one wins, no-ops skipped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

import torch

from perseus_ds.device import Gpu
from perseus_ds.errors import PerseusError


@dataclass(frozen=True, slots=True)
class Request:
    """A clock to ask for (None: the device's own choice), now or when something has happened.

    ``event`` is a CUDA event that the device must have reached; ``delay_s`` counts device seconds from
    there (from ``issued_s`` where there is no event).
    """

    clock_mhz: int | None
    issued_s: float
    event: torch.cuda.Event | None = None
    delay_s: float = 0.0


class ClockRequests:
    """One thread that forwards requests to the device, in order.

    A request that a newer one without delay has overtaken is dropped; a delayed one waits in a single
    place and gives way to whatever comes after it. The first error is kept for the training thread to
    find at its next iteration; after it nothing is asked for any more.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._asked: int | None = None
        self._delayed: Request | None = None
        self.error: PerseusError | None = None
        self.changes = 0
        self._thread = threading.Thread(target=self._serve, name="perseus-clocks", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        """Hand a request over.

        Cost: about a microsecond; never blocks.
        """
        self._queue.put(request)

    def close(self) -> None:
        """Give the clock back to the device and end the thread."""
        self._queue.put(Request(None, self._gpu.now_s()))
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while True:
            batch = self._collect()
            immediate = [i for i, request in enumerate(batch) if request is not None and not request.delay_s]
            if immediate:
                self._delayed = None
                self._apply(batch[immediate[-1]])
                batch = batch[immediate[-1] + 1 :]
            if None in batch:
                return
            if batch:
                self._delayed = batch[-1]
            elif not immediate and self._delayed is not None:
                self._apply(self._delayed)
                self._delayed = None

    def _collect(self) -> list[Request | None]:
        """Wait for a request, or until the delayed one is due (then: nothing); take all that is there."""
        try:
            batch = [self._queue.get(timeout=self._until_due_s())]
        except Empty:
            return []
        while not self._queue.empty():
            batch.append(self._queue.get())
        return batch

    def _until_due_s(self) -> float | None:
        """Wall-clock seconds until the delayed request is due; None when there is none."""
        if self._delayed is None:
            return None
        if self._delayed.event is not None:
            self._delayed.event.synchronize()
            self._delayed = replace(self._delayed, event=None, issued_s=self._gpu.now_s())
        due_s = self._delayed.issued_s + self._delayed.delay_s
        return self._gpu.wall_s(max(0.0, due_s - self._gpu.now_s()))

    def _apply(self, request: Request | None) -> None:
        if request is None or self.error is not None:
            return
        if request.event is not None:
            request.event.synchronize()
        if request.clock_mhz == self._asked:
            return
        try:
            if request.clock_mhz is None:
                self._gpu.reset_clock()
            else:
                self._gpu.lock_clock(request.clock_mhz)
        except PerseusError as error:
            self.error = error
            return
        self._asked = request.clock_mhz
        self.changes += 1
