"""A GPU's clock as drivers keep it: one lock for the node, calls and settling take time, idle as it likes."""

from __future__ import annotations

from dataclasses import dataclass

from fake_cuda import Device, FakeCuda
from personality_gpu import Character, PersonalityGpu
from virtual_host import VirtualHost

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason

CLOCKS_MHZ = tuple(range(1980, 195, -15))


@dataclass(frozen=True)
class Temper:
    """``set_s``: how long a call that sets a clock keeps the node's driver; one in ``hangs`` does to its end.

    A higher clock is in force ``up_s``, a lower one ``down_s`` after the call. With nothing to do the clock
    is ``idle_mhz`` (0: it stays), which a reason tells or not. ``capped_mhz`` is what power allows.
    """

    set_s: float = 0.010
    up_s: float = 0.030
    down_s: float = 0.020
    idle_mhz: int = 345
    tells_idle: bool = True
    capped_mhz: int = 0
    hangs: tuple[float, float] = (float("inf"), float("inf"))


class ClockedGpu(PersonalityGpu):
    """Sets the clock of one of the double's devices, through a driver that all GPUs of the node share."""

    def __init__(
        self, host: VirtualHost, cuda: FakeCuda, device: Device, driver: object, temper: Temper | None = None
    ) -> None:
        super().__init__(host, Character())
        self._at, self._cuda, self._device, self._driver = host, cuda, device, driver
        self._temper = temper or Temper()
        self._wanted: list[tuple[float, int]] = [(-1.0, CLOCKS_MHZ[0])]
        self.sets: list[int | None] = []

    def capabilities(self) -> Capabilities:
        return Capabilities(CLOCKS_MHZ, (1,), True, None, 0.1, 0.037, 0.010)

    def lock_clock(self, clock_mhz: int) -> None:
        self._set(clock_mhz)

    def reset_clock(self) -> None:
        self._set(None)

    def achieved(self) -> Achieved:
        self._at.sleep(50e-6)
        idle = all(op.end_s <= self._at.now_s() for op in self._device.pending)
        wanted_mhz = self._in_force_mhz()
        if idle and self._temper.idle_mhz:
            reasons = EventReason.GPU_IDLE if self._temper.tells_idle else EventReason.NONE
            return Achieved(min(wanted_mhz, self._temper.idle_mhz), reasons)
        capped_mhz = self._temper.capped_mhz or wanted_mhz
        reasons = EventReason.SW_POWER_CAP if capped_mhz < wanted_mhz else EventReason.NONE
        return Achieved(min(wanted_mhz, capped_mhz), reasons)

    def _in_force_mhz(self) -> int:
        now_s = self._at.now_s()
        return next(mhz for since_s, mhz in reversed(self._wanted) if since_s <= now_s)

    def _set(self, clock_mhz: int | None) -> None:
        """The call blocks, with the interpreter's lock released; the clock follows."""
        temper, to_mhz = self._temper, clock_mhz or CLOCKS_MHZ[0]
        with self._driver:
            begins_s, ends_s = temper.hangs
            if begins_s <= self._at.now_s() < ends_s:
                self._at.native(lambda: ends_s)
            self._at.sleep(temper.set_s)
        self.sets.append(clock_mhz)
        settle_s = temper.up_s if to_mhz > self._wanted[-1][1] else temper.down_s
        self._wanted.append((self._at.now_s() + settle_s, to_mhz))
