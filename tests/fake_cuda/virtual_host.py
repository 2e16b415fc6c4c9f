"""A host in virtual time: real threads that run one at a time, a stand-in for the GIL, no wall clock.

A thread runs until it parks; then the thread whose moment comes first runs, and time jumps there. Code
costs what the double says it costs (`python`, `native`), not what this machine takes. The GIL's stand-in is
given up as CPython's is: at once by a thread that sleeps or waits in a call that releases it, after the
switch interval by one that runs Python, and not at all inside a call that keeps it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty

Ready = Callable[[], float]
"""When a parked thread can go on, as things stand: a host moment, infinite while that is not known."""

NEVER_S = math.inf
_LEAST_S = 1e-9  # what a double still tells apart after weeks


class _Gone(BaseException):
    """Ends a thread whose host is closed."""


class _Sim:
    def __init__(self, name: str) -> None:
        self.name = name
        self.baton = threading.Semaphore(0)
        self.ready: Ready = lambda: 0.0
        self.requested_s = self.parked_s = 0.0
        self.done = False

    def __repr__(self) -> str:
        return self.name


class VirtualThread:
    def __init__(self, host: VirtualHost, sim: _Sim) -> None:
        self._host, self._sim = host, sim

    def join(self, timeout: float | None = None) -> None:
        until_s = NEVER_S if timeout is None else self._host.now_s() + timeout
        self._host.native(lambda: 0.0 if self._sim.done else until_s)

    def is_alive(self) -> bool:
        return not self._sim.done


class VirtualQueue:
    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._items: deque[object] = deque()

    def put(self, item: object) -> None:
        self._items.append(item)

    def get(self, *, timeout: float | None = None) -> object:
        until_s = NEVER_S if timeout is None else self._host.now_s() + timeout
        if not self._items:
            self._host.native(lambda: 0.0 if self._items else until_s)
        if not self._items:
            raise Empty
        return self._items.popleft()


class VirtualLock:
    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            self._host.native(lambda: NEVER_S if self._held else 0.0)
        self._held = True

    def __exit__(self, *error: object) -> None:
        self._held = False


class VirtualHost:
    """Made by the thread that will be its main one; ``wake_s``: how late a sleeper wakes, before the GIL."""

    def __init__(self, *, switch_s: float = 0.005, wake_s: float = 30e-6) -> None:
        self.switch_s, self.wake_s = switch_s, wake_s
        self._now_s = 0.0
        self._main = _Sim("main")
        self._sims = {threading.get_ident(): self._main}
        self._parked: list[_Sim] = []
        """In the order in which they parked: of those whose moment is the same the first goes on."""
        self._gil: _Sim | None = self._main
        self._wanting: deque[_Sim] = deque()
        self._closed = False
        self.failures: list[BaseException] = []

    # -- what product code takes as its `Threads`

    def now_s(self) -> float:
        return self._now_s

    def start(self, run: Callable[[], None], *, name: str) -> VirtualThread:
        sim = _Sim(name)
        began_s = self._now_s
        sim.ready = lambda: began_s
        self._park_in_line(sim)

        def body() -> None:
            self._sims[threading.get_ident()] = sim
            try:
                self._wait_for_baton(sim)
                self._acquire(sim)
                run()
            except _Gone:
                return
            except BaseException as error:  # noqa: BLE001  # what a thread raises is the test's to see
                self.failures.append(error)
            finally:
                self._sims.pop(threading.get_ident(), None)
            sim.done = True
            self._release(sim)
            self._dispatch(None)

        threading.Thread(target=body, name=name, daemon=True).start()
        return VirtualThread(self, sim)

    def queue(self, kind: type | None = None) -> VirtualQueue:
        del kind
        return VirtualQueue(self)

    def lock(self) -> VirtualLock:
        return VirtualLock(self)

    # -- what passes time

    def sleep(self, for_s: float) -> None:
        until_s = self._now_s + for_s
        self.native(lambda: until_s)

    def native(self, ready: Ready) -> None:
        me = self._me()
        self._release(me)
        self._park(me, ready)
        if self.wake_s and self._now_s > me.parked_s:
            woken_s = self._now_s + self.wake_s
            self._park(me, lambda: woken_s)
        self._acquire(me)

    def holding(self, ready: Ready) -> None:
        self._park(self._me(), ready)

    def spend(self, for_s: float) -> None:
        """Be in a short call that keeps the GIL."""
        if for_s:
            until_s = self._now_s + for_s
            self.holding(lambda: until_s)

    def python(self, for_s: float) -> None:
        """Run Python: whoever wants the GIL gets it after the switch interval."""
        me, left_s = self._me(), for_s
        while left_s > _LEAST_S:
            began_s = self._now_s
            end_s = began_s + left_s
            self._park(me, lambda end_s=end_s: min(end_s, self._preempted_s()))
            left_s -= self._now_s - began_s
            if left_s > _LEAST_S:
                self._release(me)
                self._acquire(me)

    @property
    def thread(self) -> str:
        return self._me().name

    def close(self) -> None:
        """End all threads that are parked."""
        self._closed = True
        for sim in self._parked:
            sim.baton.release()
        self._parked.clear()

    # -- the scheduler

    def _me(self) -> _Sim:
        return self._sims[threading.get_ident()]

    def _preempted_s(self) -> float:
        return self._wanting[0].requested_s + self.switch_s if self._wanting else NEVER_S

    def _acquire(self, me: _Sim) -> None:
        if self._gil is None:
            self._gil = me
        elif self._gil is not me:
            me.requested_s = self._now_s
            self._wanting.append(me)
            self._park(me, lambda: 0.0 if self._gil is me else NEVER_S)

    def _release(self, me: _Sim) -> None:
        if self._gil is me:
            self._gil = self._wanting.popleft() if self._wanting else None
            if self._gil is not None and self._wanting:
                self._wanting[0].requested_s = max(self._wanting[0].requested_s, self._now_s)

    def _park_in_line(self, sim: _Sim) -> None:
        sim.parked_s = self._now_s
        self._parked.append(sim)

    def _park(self, me: _Sim, ready: Ready) -> None:
        me.ready = ready
        self._park_in_line(me)
        self._dispatch(me)

    def _dispatch(self, me: _Sim | None) -> None:
        """Let the thread run whose moment comes first."""
        if self._closed:
            if me is not None and me is not self._main:
                raise _Gone
            return
        parked = self._parked
        if not parked:
            return
        chosen = min(parked, key=lambda sim: max(sim.ready(), self._now_s))
        at_s = max(chosen.ready(), self._now_s)
        if at_s == NEVER_S:
            stuck = RuntimeError(f"nothing can ever happen again: {parked} wait for ever, GIL: {self._gil}")
            if me is None or me is not self._main:
                self.failures.append(stuck)
                self._parked.remove(self._main)
                self._main.stuck = stuck
                self._main.baton.release()
                if me is not None:
                    self._wait_for_baton(me)
                return
            parked.remove(me)
            raise stuck
        parked.remove(chosen)
        self._now_s = at_s
        if chosen is me:
            return
        chosen.baton.release()
        if me is not None:
            self._wait_for_baton(me)

    def _wait_for_baton(self, me: _Sim) -> None:
        me.baton.acquire()
        if self._closed and me is not self._main:
            raise _Gone
        stuck = getattr(me, "stuck", None)
        if stuck is not None:
            raise stuck


@contextmanager
def closing(host: VirtualHost) -> Iterator[VirtualHost]:
    """A host that is closed at the end; what one of its threads raised is raised here."""
    try:
        yield host
    finally:
        host.close()
    if host.failures:
        raise host.failures[0]
