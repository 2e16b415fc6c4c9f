"""How long ranks wait for each other: as long as one of them is late, and no longer than all wait in vain.

A rank that others wait for may be late for reasons of its own, and training waits for it as well. Where all
ranks wait for the same exchange, none is late: the network between them is broken, and training may not be.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

_QUIET_S = 0.5  # an exchange of which all have their part takes less
_TIMES = 4.0  # or less than so many of the fastest one
_POLL_S = 0.05
_TURNS = 3  # ranks sign in so often before they wait no more, where processors are free
_BEHIND = 3  # waits: a rank may be so far ahead of another, where rank 0 waits for who got its broadcast
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
        self._quiet = timedelta(seconds=_QUIET_S)
        self._signed, self._lock = set[str](), threading.Lock()

    def note(self, lasted_s: float) -> None:
        """Take in how long an exchange lasted in which every rank waits for every other."""
        if lasted_s < self._fastest_s:
            self._fastest_s = lasted_s
            self._quiet = timedelta(seconds=max(_QUIET_S, _TIMES * lasted_s))

    def soon(self, work: dist.Work) -> bool:
        """Whether an exchange comes as soon as where nobody is late; asked before it is waited for.

        Raises:
            RuntimeError: it failed.
        """
        return _comes(work, self._quiet)

    def wait(self, work: dist.Work, key: str, number: int, *, lost: str, patience_s: float) -> None:
        """Wait for an exchange; ``key`` and ``number``, one more for each, are alike on all ranks.

        At the key ``lost`` a rank reports that it waits no more.

        Raises:
            RuntimeError: it failed, all ranks wait in vain, or this one has waited ``patience_s``.
        """
        until_s = time.monotonic() + patience_s
        keys = [f"{key}/{one}" for one in range(number, number - _BEHIND - 1, -1)]
        with self._lock:
            self._signed = {one for one in self._signed if one.rpartition("/")[0] in keys}
        sign_in = _SignIn(self._made, keys, lost, ranks=self._ranks, first=self._first)
        try:
            while (left_s := until_s - time.monotonic()) > 0.0:
                if _comes(work, timedelta(seconds=min(_POLL_S, left_s))):
                    return
                sign_in.still_waits()
                if sign_in.in_vain:
                    raise RuntimeError("all ranks wait, and nothing comes through")
        finally:
            sign_in.close()
        raise RuntimeError(f"nothing came within {patience_s:.0f} s")

    def _first(self, key: str) -> bool:
        """Whether this rank has not signed there yet; asked once, it has."""
        with self._lock:
            known = key in self._signed
            self._signed.add(key)
        return not known


class _SignIn:
    """One rank's part in finding out whether all wait, in a thread: a store may not answer either.

    Ranks sign in again and again, each only after it has looked once more whether its numbers have come. A
    rank that a busy host keeps from looking does not sign, and nobody takes it for one that waits in vain.

    The threads that carry numbers need processors as well. A host with five programs ready for each processor
    is given five times as many turns.

    A link may break when some ranks have their numbers and wait for the next ones already. These sign at the
    exchanges before theirs as well: their part in those is done. ``first`` states whether a rank signs there
    for the first time.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        keys: Sequence[str],
        lost: str,
        *,
        ranks: int,
        first: Callable[[str], bool],
    ) -> None:
        self.in_vain = False
        self._store, self._keys, self._lost, self._ranks = store, keys, lost, ranks
        self._first = first
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
        turns = dict.fromkeys(self._keys, 0)
        try:
            store = self._store()
            while self._looks() and max(turns.values()) < _turns() and not store.check([self._lost]):
                signed = self._signed_at(store, [f"{key}/{turn}" for key, turn in turns.items()])
                for key, ranks in zip(self._keys, signed, strict=True):
                    turns[key] += ranks >= self._ranks
        except RuntimeError:
            return  # without a store the wait is bounded all the same
        self.in_vain = not self._over.is_set()

    def _looks(self) -> bool:
        """Wait until this rank has looked once more; false once its wait is over."""
        self._looked.clear()
        self._over.wait(self._poll_s)
        while not (self._looked.wait(self._poll_s) or self._over.is_set()):
            pass
        return not self._over.is_set()

    def _signed_at(self, store: Store, keys: Sequence[str]) -> list[int]:
        """Sign wherever this rank has not yet; return how many ranks have."""
        for key in keys:
            if self._first(key):
                store.add(key, 1)
        if store.has_extended_api():  # type: ignore[attr-defined]  # torch's stub does not know it
            return [int(count) for count in store.multi_get(list(keys))]  # one request
        return [store.add(key, 0) for key in keys]


def _turns() -> int:
    """How many turns of this host's ranks show that nothing comes."""
    return math.ceil(_TURNS * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))))


def _comes(work: dist.Work, within: timedelta) -> bool:
    """Whether an exchange is over in time.

    Raises:
        RuntimeError: it failed.
    """
    try:
        work.wait(within)
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()  # its own failure, if it came to one
    return True
