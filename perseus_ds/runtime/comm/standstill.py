"""How long ranks wait for each other: as long as one of them is late, and no longer than all wait in vain.

A rank that others wait for may be late for reasons of its own, and training waits for it as well. Where all
ranks wait for the same exchange, none is late: the network between them is broken, and training may not be.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

_QUIET_S = 0.5  # an exchange of which all have their part takes less
_TIMES = 4.0  # or less than so many of the fastest one
_POLL_S = 0.05
_OFTEN = 1024  # ranks that may ask the store so often; more of them ask less often


class Standstill:
    """Wait for exchanges of all ranks, and end it where all of them wait in vain.

    A rank that has waited a while signs in at the job's key-value store, in a thread, over the connection
    that ``store`` makes. Nothing is asked where numbers come at once.
    """

    def __init__(self, store: Callable[[], Store], *, ranks: int) -> None:
        self._made = store
        self._ranks = ranks
        self._fastest_s = math.inf

    def note(self, lasted_s: float) -> None:
        """Take in how long an exchange lasted in which every rank waits for every other."""
        self._fastest_s = min(self._fastest_s, lasted_s)

    def wait(self, work: dist.Work, key: str, *, lost: str, patience_s: float) -> None:
        """Wait for an exchange; ``key`` is its own, and at ``lost`` a rank reports that it waits no more.

        Raises:
            RuntimeError: it failed, all ranks wait in vain, or this one has waited ``patience_s``.
        """
        until_s = time.monotonic() + patience_s
        quiet_s = _QUIET_S if self._fastest_s == math.inf else max(_QUIET_S, _TIMES * self._fastest_s)
        if _comes(work, min(quiet_s, patience_s)):
            return
        sign_in = _SignIn(self._made, key, lost, self._ranks)
        try:
            while (left_s := until_s - time.monotonic()) > 0.0:
                if _comes(work, min(_POLL_S, left_s)):
                    return
                if sign_in.in_vain:
                    raise RuntimeError("all ranks wait, and nothing comes through")
        finally:
            sign_in.close()
        raise RuntimeError(f"nothing came within {patience_s:.0f} s")


class _SignIn:
    """One rank's part in finding out whether all wait, in a thread: a store may not answer either."""

    def __init__(self, store: Callable[[], Store], key: str, lost: str, ranks: int) -> None:
        self.in_vain = False
        self._store, self._key, self._lost, self._ranks = store, key, lost, ranks
        self._over = threading.Event()
        threading.Thread(target=self._ask, name="perseus-standstill", daemon=True).start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self) -> None:
        poll_s = _POLL_S * max(1.0, self._ranks / _OFTEN)
        try:
            store = self._store()
            waiting = store.add(self._key, 1)
            while not (waiting >= self._ranks or store.check([self._lost])):
                if self._over.wait(poll_s):
                    return
                waiting = store.add(self._key, 0)
        except RuntimeError:
            return  # without a store the wait is bounded all the same
        self.in_vain = True


def _comes(work: dist.Work, within_s: float) -> bool:
    """Whether an exchange is over in time.

    Raises:
        RuntimeError: it failed.
    """
    try:
        work.wait(timedelta(seconds=within_s))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()  # its own failure, if it came to one
    return True
