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
_TURNS = 3  # ranks sign in so often before they wait no more
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
                sign_in.still_waits()
                if sign_in.in_vain:
                    raise RuntimeError("all ranks wait, and nothing comes through")
        finally:
            sign_in.close()
        raise RuntimeError(f"nothing came within {patience_s:.0f} s")


class _SignIn:
    """One rank's part in finding out whether all wait, in a thread: a store may not answer either.

    Ranks sign in again and again, each only after it has looked once more whether its numbers have come. A
    rank that a busy host keeps from looking does not sign, and nobody takes it for one that waits in vain.
    """

    def __init__(self, store: Callable[[], Store], key: str, lost: str, ranks: int) -> None:
        self.in_vain = False
        self._store, self._key, self._lost, self._ranks = store, key, lost, ranks
        self._poll_s = _POLL_S * max(1.0, ranks / _OFTEN)
        self._over, self._looked = threading.Event(), threading.Event()
        threading.Thread(target=self._ask, name="perseus-standstill", daemon=True).start()

    def still_waits(self) -> None:
        """Note that this rank has looked, and nothing has come."""
        self._looked.set()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self) -> None:
        try:
            store = self._store()
            self.in_vain = all(self._all_sign(store, f"{self._key}/{turn}") for turn in range(_TURNS))
        except RuntimeError:
            return  # without a store the wait is bounded all the same

    def _all_sign(self, store: Store, key: str) -> bool:
        """Look, sign, and wait until all have signed or one waits no more; false once this wait is over."""
        self._looked.clear()
        while not self._looked.wait(self._poll_s):
            if self._over.is_set():
                return False
        signed = store.add(key, 1)
        while not (signed >= self._ranks or store.check([self._lost])):
            if self._over.wait(self._poll_s):
                return False
            signed = store.add(key, 0)
        return not self._over.is_set()


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
