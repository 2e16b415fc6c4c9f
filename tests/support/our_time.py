"""How long calls of ours take in a job's iterations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perseus_ds.runtime.lifecycle.session import Session


class OurTime:
    """How long calls of ours take, of one iteration."""

    def __init__(self) -> None:
        self.taken_s = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: object) -> object:
            began_s = time.monotonic()
            try:
                return call(*args)
            finally:
                self.taken_s += time.monotonic() - began_s

        return timed

    def put_around(self, session: Session) -> None:
        """Time what is waited in: the exchange, at an iteration's end, and what follows it."""
        if "iteration_ends" not in vars(session):
            session.iteration_ends = self.around(session.iteration_ends)  # type: ignore[method-assign]

    def take(self) -> float:
        """Return how long they took since the last time."""
        taken_s, self.taken_s = self.taken_s, 0.0
        return taken_s
