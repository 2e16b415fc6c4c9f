"""Stand-ins for what the engine room talks to: a device that notes, moments that a test reaches by hand."""

import threading

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, Gpu, Identity


class NotingGpu(Gpu):
    """Notes every clock asked for; time stands still unless it is moved."""

    def __init__(self, *, counter_period_s: float | None = 0.1) -> None:
        self.asked: list[int | None] = []
        self.time_s = 0.0
        self.counter_j = 0.0
        self.fails: Exception | None = None
        self.failed = threading.Event()
        self.observed = threading.Semaphore(0)
        self._period_s = counter_period_s

    def identify(self) -> Identity:
        return Identity("Noting GPU", "GPU-0", "0000:00:00.0", "none", 0)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            (1000, 900, 800),
            (1,),
            can_lock=True,
            why_not=None,
            counter_period_s=self._period_s,
            switch_latency_s=0.02,
        )

    def lock_clock(self, clock_mhz: int) -> None:
        self._note(clock_mhz)

    def reset_clock(self) -> None:
        self._note(None)

    def achieved(self) -> Achieved:
        return Achieved(1000, 1, EventReason.NONE)

    def energy_j(self) -> float:
        if self.fails is not None:
            raise self.fails
        return self.counter_j

    def now_s(self) -> float:
        return self.time_s

    def close(self) -> None:
        self.reset_clock()

    def wait_for(self, requests: int) -> list[int | None]:
        """Return everything asked for, once so many requests have come."""
        for _ in range(requests):
            assert self.observed.acquire(timeout=10.0), f"asked for {self.asked} only"
        return self.asked

    def _note(self, clock_mhz: int | None) -> None:
        if self.fails is not None:
            self.failed.set()
            raise self.fails
        self.asked.append(clock_mhz)
        self.observed.release()


class HandMoment:
    """A point of a stream that the device reaches when the test says so."""

    def __init__(self, at_s: float = 0.0) -> None:
        self._reached = threading.Event()
        self.awaited = threading.Event()
        self.at_s = at_s

    def reach(self) -> None:
        self._reached.set()

    def wait(self) -> float:
        self.awaited.set()
        assert self._reached.wait(10.0), "the test never reached this moment"
        return self.at_s
