"""CUDA events out of a pool, recorded, asked and slept on so that no call of ours falls into a capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from perseus_ds.runtime.measure.cuda.calls import Cuda, CudaEvent, enter_thread, relaxed
from perseus_ds.runtime.measure.cuda.captures import Captures
from perseus_ds.runtime.measure.threads import Threads

_POLL_S = 1e-3


class PooledEvent:
    """A timed event; ``blocking``: to sleep on. ``holders`` holds True for the last of them to let it go."""

    __slots__ = ("blocking", "cuda", "holders")

    def __init__(self, cuda: CudaEvent, *, blocking: bool) -> None:
        self.cuda = cuda
        self.blocking = blocking
        self.holders = [True]

    def hold(self) -> None:
        """Note one more who needs it; by one who holds it."""
        self.holders.append(False)


class Events:
    """What CUDA refuses is kept for `trouble`: whoever wanted an event then has none.

    Cost: an event is made when none is free, and used again; the training thread never waits for one.
    """

    def __init__(self, cuda: Cuda, threads: Threads) -> None:
        self._cuda = cuda
        self._threads = threads
        self._hip, self._capturing = cuda.hip, cuda.capturing
        self._device = cuda.current_device()
        self.captures = Captures(cuda, threads)
        self._guarded: AbstractContextManager[object] = self.captures.lock if self._hip else nullcontext()
        self._plain: list[PooledEvent] = []
        self._sleepers: list[PooledEvent] = []
        self._lost = ""
        self._lost_said = False

    @property
    def capturing(self) -> bool:
        """Whether a graph is being captured: nothing of ours is called meanwhile."""
        return self.captures.under_way > 0 or self._capturing()

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Make calls that break nobody's capture."""
        with self._guarded, relaxed(self._cuda):
            yield

    def relaxed(self) -> AbstractContextManager[None]:
        """Make calls that break nobody's capture on CUDA; on HIP they look out for themselves."""
        return relaxed(self._cuda)

    def recorded(self, *, blocking: bool = False) -> PooledEvent | None:
        """Put an event into the current stream, ``blocking`` to sleep on; None where it cannot be."""
        try:
            if not self._hip:
                return self._recorded(blocking=blocking)
            with self._guarded:
                return self._recorded(blocking=blocking)
        except RuntimeError as error:
            self.lose(error)
            return None

    def sleepable(self, event: PooledEvent) -> PooledEvent | None:
        """Have a thread able to sleep until here: record another in place of what was recorded last.

        There are not more events than before. None where none can be recorded.
        """
        if event.blocking:
            return event
        new = not self._sleepers
        other = self.recorded(blocking=True)
        if other is not None and not new:
            self.let_go(event)
        return other

    def let_go(self, event: PooledEvent) -> None:
        """Need an event no more, on any thread: the last who held it has it used again."""
        if len(event.holders) > 1:  # who holds it alone is the last: nobody else can begin to
            if not event.holders.pop():
                return
            event.holders.append(True)
        (self._sleepers if event.blocking else self._plain).append(event)

    def reached(self, event: PooledEvent) -> bool:
        """Whether the device has reached an event; one that cannot be asked holds up nobody."""
        try:
            return event.cuda.query()
        except RuntimeError as error:
            self.lose(error)
            return True

    def elapsed_s(self, begin: PooledEvent, end: PooledEvent) -> float:
        """Return what lies between two events, on any thread.

        Raises:
            RuntimeError: CUDA's own: one was not reached, or is lost.
        """
        with self._guarded:
            return begin.cuda.elapsed_time(end.cuda) * 1e-3

    def sleep_until(self, event: PooledEvent) -> None:
        """Sleep until the device has reached an event; on HIP by looks that no capture falls into.

        Raises:
            RuntimeError: CUDA's own: the event is lost.
        """
        if not self._hip:
            event.cuda.synchronize()
            return
        while True:
            with self.captures.lock:
                if not self.captures.under_way and event.cuda.query():
                    return
            self._threads.sleep(_POLL_S)

    def lose(self, error: Exception) -> None:
        """Note why an event was lost, the first time."""
        self._lost = self._lost or str(error).splitlines()[0]

    def trouble(self) -> str:
        """Report once why marks are lost."""
        if not self._lost or self._lost_said:
            return ""
        self._lost_said = True
        return f"iterations are left out where a mark of ours was lost: {self._lost}"

    def enter_thread(self) -> None:
        """Choose this job's device, and have no call of this thread break a capture."""
        enter_thread(self._cuda, self._device)

    def _recorded(self, *, blocking: bool) -> PooledEvent | None:
        if self.captures.under_way or self._capturing():
            return None
        pool = (not blocking and self._plain) or self._sleepers
        event = pool.pop() if pool else self._made(blocking=blocking)
        event.cuda.record()
        return event

    def _made(self, *, blocking: bool) -> PooledEvent:
        with relaxed(self._cuda):
            return PooledEvent(self._cuda.event(timing=True, blocking=blocking), blocking=blocking)
