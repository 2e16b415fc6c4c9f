"""What the clock thread does at a device in steps; between two of them it lets the device's time pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from perseus_ds.device.clock_change import Steps
from perseus_ds.device.simulated.gpu import VirtualTime


class Errand:
    """Steps that put back what they changed when they end, or are made to."""

    def __init__(self, steps: Steps[None]) -> None:
        self._steps = steps
        self._stopped = False

    def stop(self) -> None:
        """Have it end before its next step."""
        self._stopped = True

    def go_on(self) -> float | None:
        """Do the next step; return how many device seconds are to pass before the next; None: no more."""
        if self._stopped:
            self._steps.close()
            return None
        return next(self._steps, None)


class VirtualErrands:
    """Errands in virtual time, one after the other, each step at its moment."""

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual = virtual
        self._waiting: deque[Errand] = deque()
        self._cancel: Callable[[], None] = lambda: None

    def put(self, errand: Errand) -> None:
        """Begin it when those before it have ended."""
        self._waiting.append(errand)
        if len(self._waiting) == 1:
            self._go_on()

    def stop(self, errand: Errand) -> None:
        """End it now."""
        errand.stop()
        if self._waiting and self._waiting[0] is errand:
            self._cancel()
            self._go_on()

    def close(self) -> None:
        """End all of them."""
        for errand in self._waiting:
            errand.stop()
        self._cancel()
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            pause_s = self._waiting[0].go_on()
            if pause_s is not None:
                self._cancel = self._virtual.at(self._virtual.now_s() + pause_s, self._go_on)
                return
            self._waiting.popleft()
