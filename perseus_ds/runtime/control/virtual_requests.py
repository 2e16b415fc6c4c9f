"""Clock requests on a device with a time of its own: each is made at its moment, whatever threads do."""

from __future__ import annotations

from collections.abc import Callable

from perseus_ds.device import Gpu
from perseus_ds.device.simulated import VirtualTime
from perseus_ds.errors import PerseusError, as_perseus_error
from perseus_ds.runtime.control.clock_requests import AskedClocks, Request
from perseus_ds.runtime.measure.request_counts import RequestCounts


class VirtualRequests:
    """What `ClockRequests` does with a thread, by the device's own time.

    A delayed request gives way to a later one that is due before it. The first error is kept for
    the training thread; after it nothing is asked for any more.
    """

    def __init__(self, gpu: Gpu, clock: VirtualTime) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, Callable[[], None]]] = []
        self._clocks = AskedClocks(gpu)
        self.error: PerseusError | None = None
        self.counts = RequestCounts()

    def put(self, request: Request) -> None:
        """Ask now, or have it asked when it is due."""
        due_s, now_s = request.issued_s + request.delay_s, self._clock.now_s()
        for other_s, cancel in self._waiting:
            if other_s > due_s:
                cancel()
        self._waiting = [one for one in self._waiting if now_s <= one[0] <= due_s]
        self._waiting.append((due_s, self._clock.at(due_s, lambda: self._apply(request))))
        self._clock.pass_to(now_s)

    def close(self) -> None:
        """Give the clock back to the device; what is not due yet is dropped."""
        for _, cancel in self._waiting:
            cancel()
        self._apply(Request(None, self._clock.now_s()))

    def _apply(self, request: Request) -> None:
        if self.error is not None:
            return
        try:
            if self._clocks.ask(request.clock_mhz, request.memory_mhz):
                self.counts.made()
        except Exception as error:  # noqa: BLE001  # kept for the training thread, which says it
            self.error = as_perseus_error(error)
