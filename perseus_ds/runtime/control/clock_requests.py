"""Ask for clocks from the training thread without ever waiting: stream order, last wins, no-ops skipped."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Protocol

import torch

from perseus_ds.device import Gpu
from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.runtime.measure.request_counts import RequestCounts

_POLL_S = 0.5e-3
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """Clocks to ask for (None: the device's own choice), now or when something has happened.

    ``event`` is a CUDA event that the device must have reached; ``delay_s`` counts device seconds from
    there (from ``issued_s`` where there is no event).
    """

    clock_mhz: int | None
    issued_s: float
    event: torch.cuda.Event | None = None
    delay_s: float = 0.0
    memory_mhz: int | None = None

    def overtakes(self, now_s: float) -> bool:
        """Whether this request is due itself, so that an older one that still waits has no turn left."""
        if self.event is not None and not self.event.query():  # type: ignore[no-untyped-call]
            return False
        return not self.delay_s or (self.event is None and now_s >= self.issued_s + self.delay_s)


_END = Request(None, 0.0)


class AskedClocks:
    """The clocks that a device was asked for last: what it has been asked for is not asked again."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._clock_mhz: int | None = None
        self._memory_mhz: int | None = None

    def ask(self, clock_mhz: int | None, memory_mhz: int | None) -> bool:
        """Ask for what is new; return whether anything was."""
        changed = (clock_mhz, memory_mhz) != (self._clock_mhz, self._memory_mhz)
        if clock_mhz != self._clock_mhz:
            if clock_mhz is None:
                self._gpu.reset_clock()
            else:
                self._gpu.lock_clock(clock_mhz)
            self._clock_mhz = clock_mhz
        if memory_mhz != self._memory_mhz:
            if memory_mhz is None:
                self._gpu.reset_memory_clock()
            else:
                self._gpu.lock_memory_clock(memory_mhz)
            self._memory_mhz = memory_mhz
        return changed


class Requests(Protocol):
    """Who brings requests to the device; the first error is kept for the training thread to find."""

    error: PerseusError | None
    counts: RequestCounts

    def put(self, request: Request) -> None:
        """Hand a request over; never blocks."""

    def close(self) -> None:
        """Give the clock back to the device."""


class ClockRequests:
    """One thread that forwards requests to the device, in the order of the stream.

    The host runs ahead of the device, so a request first waits for its event, then for its delay. When a
    newer one is due by then, the older is dropped (``counts`` has those): it would come too late, and
    the newer is already for what comes after. The first error is kept for the training thread to find at
    its next iteration; after it nothing is asked for any more.
    """

    def __init__(self, gpu: Gpu, *, patience_s: float = _PATIENCE_S) -> None:
        self._gpu = gpu
        self._patience_s = patience_s
        self._queue: SimpleQueue[Request] = SimpleQueue()
        self._clocks = AskedClocks(gpu)
        self._closing = False
        self.error: PerseusError | None = None
        self.counts = RequestCounts()
        self._thread = threading.Thread(target=self._serve, name="perseus-clocks", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        """Hand a request over.

        Cost: about a microsecond; never blocks.
        """
        self._queue.put(request)

    def close(self) -> None:
        """Give the clock back to the device and end the thread; what still waits is dropped.

        A device that hangs is not waited for: closing the device itself is then what restores the clock.
        """
        self._closing = True
        self._queue.put(_END)
        self._thread.join(self._patience_s)

    def _serve(self) -> None:
        present = self._queue.get()
        while present is not _END:
            try:
                present = self._turn(present)
            except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
                self.error = self.error or as_perseus_error(error)
                present = _END if self._closing else self._queue.get()
        self._give_back()

    def _turn(self, present: Request) -> Request:
        """Ask for a request's clock in its turn, unless it is overtaken; return the next request."""
        if self._closing:
            return _END
        if present.event is not None:
            present.event.synchronize()
            present = replace(present, event=None, issued_s=self._gpu.now_s())
        following = self._until_due(present)
        if following is not None and following.overtakes(self._gpu.now_s()):
            self.counts.overtaken += present.clock_mhz is not None  # rest between iterations may give way
            return following
        self._apply(present)
        return self._queue.get() if following is None else following

    def _until_due(self, present: Request) -> Request | None:
        """Wait for the end of a delay, or for who overtakes; return the next request if it is there."""
        following: Request | None = None
        while True:
            left_s = self._left_s(present)
            if following is None:
                following = self._arriving(left_s)
            else:
                time.sleep(min(left_s, _POLL_S))
                following = self._reached(following)
            if not left_s or (following is not None and following.overtakes(self._gpu.now_s())):
                return following

    def _reached(self, request: Request) -> Request:
        """Count a request's delay from when the device has reached its event."""
        if request.event is None or not request.event.query():  # type: ignore[no-untyped-call]
            return request
        return replace(request, event=None, issued_s=self._gpu.now_s())

    def _left_s(self, present: Request) -> float:
        """Wall-clock seconds until the request is due."""
        if not present.delay_s:
            return 0.0
        return self._gpu.wall_s(max(0.0, present.issued_s + present.delay_s - self._gpu.now_s()))

    def _arriving(self, for_s: float) -> Request | None:
        try:
            return self._queue.get(timeout=for_s)
        except Empty:
            return None

    def _apply(self, request: Request) -> None:
        if self.error is None and not self._closing:
            due_s = request.issued_s + request.delay_s
            late_s = self._gpu.wall_s(max(0.0, self._gpu.now_s() - due_s))
            if self._clocks.ask(request.clock_mhz, request.memory_mhz):
                self.counts.made(late_s=late_s)

    def _give_back(self) -> None:
        """Reset the clock, if there is something to reset and the device answers."""
        if self.error is not None:
            return
        try:
            self._clocks.ask(None, None)
        except Exception as error:  # noqa: BLE001  # closing the device is the next try
            self.error = as_perseus_error(error)
