"""A GPU on the desk: it does what it is asked at once, remembers every call, and can be interfered with."""

from collections.abc import Callable
from dataclasses import replace

from perseus_ds.device.gpu import Achieved, Capabilities, EventReason, NullGpu, OperatorSettings
from perseus_ds.errors import DeviceError, ValueRefusedError

INDEX = 1
UUID = f"null-{INDEX}"


class DeskGpu(NullGpu):
    """``before`` hears of every call that changes a clock; ``moved_mhz`` is where somebody else put it."""

    def __init__(self, before: Callable[[int | None], None] = lambda _: None) -> None:
        super().__init__(INDEX)
        self.before = before
        self.calls: list[int | None] = []
        self.locked_mhz: int | None = None
        self.moved_mhz: int | None = None
        self.reasons = EventReason.NONE
        self.able = Capabilities((1410, 1200, 900, 705), (1593,), True, None, 0.1, 0.0)
        self.refuses: DeviceError | None = None
        self.refuses_mhz: set[int] = set()
        self.refused: set[int] = set()
        self.power = OperatorSettings()
        self.closed = 0

    def capabilities(self) -> Capabilities:
        return self.able

    def refused_mhz(self) -> frozenset[int]:
        return frozenset(self.refused)

    def without_persistence(self) -> "DeskGpu":
        self.able = replace(self.able, persistence=False)
        return self

    def lock_clock(self, clock_mhz: int) -> None:
        self._set(clock_mhz)

    def reset_clock(self) -> None:
        self._set(None)

    def achieved(self) -> Achieved:
        return Achieved(self.moved_mhz or self.locked_mhz or 1410, 1593, self.reasons)

    def operator_settings(self) -> OperatorSettings:
        return self.power

    def close(self) -> None:
        self.closed += 1

    def _set(self, clock_mhz: int | None) -> None:
        self.before(clock_mhz)
        if clock_mhz in self.refuses_mhz:
            self.refused.add(clock_mhz)
            raise ValueRefusedError(f"lock {clock_mhz} MHz: refused")
        if self.refuses is not None:
            raise self.refuses
        self.calls.append(clock_mhz)
        self.locked_mhz = clock_mhz
