"""A GPU's energy counter with the characters that real ones have, on a host in virtual time."""

from collections.abc import Callable
from dataclasses import dataclass

from virtual_host import VirtualHost

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, Gpu, Identity

Power = Callable[[float], float]
CALL_S = 50e-6
"""Seconds that every read takes."""


@dataclass(frozen=True)
class Character:
    """What its counter is like: ``looks`` is the share of a period that it samples (25 of 100 ms).

    ``counts`` is by how much it counts too much or too little, ``module_w`` the power of all else that a
    module's counter counts. One that ``stands_still`` never moves, one that ``stops_s`` not from then on; at
    ``wraps_j`` it begins again at 0. ``shows`` is what is read of what it has counted.
    ``hangs`` (from, until) is when reads block; ``power_fails`` in a way of its own.
    """

    period_s: float = 0.1
    looks: float = 0.25
    counts: float = 1.0
    module_w: float = 0.0
    stands_still: bool = False
    stops_s: float = float("inf")
    wraps_j: float = float("inf")
    shows: Callable[[float], float] = float
    hangs: tuple[float, float] = (float("inf"), float("inf"))
    tells_power: bool = True
    power_fails: bool = False


class PersonalityGpu(Gpu):
    """Takes ``power`` (watts at a moment of the host), and counts it as its character is."""

    def __init__(self, host: VirtualHost, character: Character, power: Power = lambda _: 400.0) -> None:
        self._host, self._like, self._power = host, character, power
        self._count_j, self._counted_s = 0.0, host.now_s()
        self.reads = 0

    def identify(self) -> Identity:
        return Identity("Personality GPU", "GPU-P", "0000:00:00.0", "none", 0)

    def capabilities(self) -> Capabilities:
        return Capabilities((1980,), (1,), False, "a double", self._like.period_s, 0.02)

    def lock_clock(self, clock_mhz: int) -> None:
        raise AssertionError(clock_mhz)

    def reset_clock(self) -> None:
        """Nothing is locked."""

    def achieved(self) -> Achieved:
        return Achieved(1980, EventReason.NONE)

    def energy_j(self) -> float:
        self._called()
        like, now_s = self._like, self._host.now_s()
        now_s = min(now_s, like.stops_s)
        while not like.stands_still and self._counted_s + like.period_s <= now_s:
            self._counted_s += like.period_s
            middle_s = self._counted_s - 0.5 * like.looks * like.period_s
            self._count_j += (like.counts * self._power(middle_s) + like.module_w) * like.period_s
        return like.shows(self._count_j % like.wraps_j)

    def power_w(self) -> float | None:
        if self._like.power_fails:
            raise AttributeError("undefined symbol")
        if not self._like.tells_power:
            return None
        self._called()
        return self._power(self._host.now_s())

    def now_s(self) -> float:
        return self._host.now_s()

    def close(self) -> None:
        """Nothing is held."""

    def _called(self) -> None:
        self.reads += 1
        begins_s, ends_s = self._like.hangs
        if begins_s <= self._host.now_s() < ends_s:
            self._host.native(lambda: ends_s)
        self._host.sleep(CALL_S)
