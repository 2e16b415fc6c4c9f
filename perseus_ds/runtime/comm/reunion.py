"""The way back of ranks that lost each other: a meeting at the job's key-value store, beside the training."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

G = TypeVar("G")

_POLL_S = 0.5
_OFTEN = 1024  # ranks that may ask the store so often; more of them ask less often
_AHEAD_POLLS = 4.0  # every rank has read the appointment by then
_LEAST_AHEAD = 3  # iterations: ranks are never more than one apart
_LONGEST_PAUSE_S = 60.0
_AGAIN = "again"


class Store(Protocol):
    """What we use of a key-value store of torch.distributed."""

    def set(self, key: str, value: str, /) -> None:
        """Write a value."""

    def get(self, key: str, /) -> bytes:
        """Return a value, waiting for it."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""


def lost_key(name: str, losses: int) -> str:
    """Where a rank reports that it has lost the others, for those who wait for it."""
    return f"{name}/reunion/{losses}/lost"


class Reunion(Generic[G]):
    """One rank's part in finding all others again, from the iteration at which it lost them.

    A thread does it, so that the training waits for nothing. All sign in, make a group (``make``, by its
    name; None where they do not reach each other) and report. Where all have one, rank 0 names an iteration
    to come; else all try again after a pause. ``losses`` counts how often ranks were lost: the more often,
    the longer is the first pause. Whoever reads of the appointment too late does not come: then the others
    lose it again.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        make: Callable[[str], G | None],
        *,
        rank: int,
        ranks: int,
        losses: int,
    ) -> None:
        self._store = store
        self._lost = lost_key(name, losses)
        self._name = f"{name}/reunion/{losses}"
        self._make = make
        self._rank, self._ranks = rank, ranks
        self._pause_s = 2.0 ** (losses - 1) - 1.0
        self._poll_s = _POLL_S * max(1.0, ranks / _OFTEN)
        self._index, self._began_s, self._passed = 0, time.monotonic(), 0
        self._met: tuple[int, G] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._meet, name="perseus-reunion", daemon=True)
        self._thread.start()

    def at(self, index: int) -> G | bool:
        """Return the group of all if they meet at iteration ``index``; True where that was missed.

        False until then. Never waits.
        """
        self._index = index
        self._passed += 1
        if self._met is None or index < self._met[0]:
            return False
        return self._met[1] if index == self._met[0] else True

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    def _meet(self) -> None:
        self._everyone_may_know()
        attempt = 0
        while self._met is None and not self._over.is_set():
            self._over.wait(min(_LONGEST_PAUSE_S, self._pause_s))
            self._pause_s = 2.0 * self._pause_s + 1.0
            attempt += 1
            self._try(f"{self._name}/{attempt}")

    def _everyone_may_know(self) -> None:
        try:
            self._store.set(self._lost, "")
        except RuntimeError:
            return  # a store that cannot be reached: each rank's wait is bounded

    def _try(self, key: str) -> None:
        """Sign in, make a group, report, and read what came of it; in step with all ranks."""
        if self._everyone(f"{key}/here", "here") is None:
            return
        group = self._make(f"{key}/group")
        at = self._everyone(f"{key}/made", "" if group is None else "made", then=self._appointment)
        if group is not None and at is not None and at != _AGAIN:
            self._met = int(at), group

    def _everyone(self, key: str, mine: str, *, then: Callable[[str], str] = lambda _: "go") -> str | None:
        """Report, and return rank 0's decision once all have; None where the search is over.

        A store that cannot be reached is asked again.
        """
        reported = False
        while not self._over.is_set():
            try:
                if not reported:
                    self._store.set(f"{key}/{self._rank}", mine)
                    reported = True
                if self._rank == 0 and self._store.check([f"{key}/{rank}" for rank in range(self._ranks)]):
                    self._store.set(key, then(key))
                if self._store.check([key]):
                    return self._store.get(key).decode()
            except RuntimeError:
                reported = False
            self._over.wait(self._poll_s)
        return None

    def _appointment(self, key: str) -> str:
        """As many iterations ahead that every rank has looked by then, as fast as they pass at present."""
        if not all(self._store.get(f"{key}/{rank}") for rank in range(self._ranks)):
            return _AGAIN
        per_s = self._passed / max(1e-3, time.monotonic() - self._began_s)
        return str(self._index + max(_LEAST_AHEAD, math.ceil(_AHEAD_POLLS * self._poll_s * per_s)))
