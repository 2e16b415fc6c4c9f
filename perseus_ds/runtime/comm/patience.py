"""How long the other ranks' numbers are waited for while a plan runs, by how long they took so far."""

from __future__ import annotations

_LEAST_S, _MOST_S = 0.8, 2.0
_TIMES = 4.0
_FADES = 0.99


class Patience:
    """All ranks have posted an iteration before any has ended the next: what is missing then comes late.

    In most jobs it is always there, so that a second of silence is a broken link. Hosts that run ahead of
    their GPUs, or are busy, wait every now and then, and are given longer.
    """

    def __init__(self) -> None:
        self._longest_s = 0.0

    @property
    def seconds(self) -> float:
        """How long to wait at most."""
        return min(_MOST_S, max(_LEAST_S, _TIMES * self._longest_s))

    def waited(self, wait_s: float) -> None:
        """Take in how long it took this time; what was long before counts for less and less."""
        self._longest_s = max(wait_s, _FADES * self._longest_s)
