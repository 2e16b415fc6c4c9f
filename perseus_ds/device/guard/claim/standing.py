"""Somebody's lock, found after a GPU was taken and before ours: only a GPU that works shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from perseus_ds.device.guard.claim.found import preexisting_lock_mhz
from perseus_ds.device.guard.claim.gpu_claim import GpuClaim
from perseus_ds.device.guard.container import sees_the_node
from perseus_ds.device.record import Achieved
from perseus_ds.errors import DeviceError, DeviceUnsupportedError

_EVERY_S = 0.25
_LOOKS = 8  # at a clock that stands still under load: longer than the driver's figure of the load is old


class FirstLooks:
    """Looks at a claimed GPU until the first clock is asked for, while the job warms up at what it found."""

    def __init__(self, claim: GpuClaim, now_s: Callable[[], float]) -> None:
        self._claim = claim
        self._now_s = now_s
        self._samples: deque[Achieved] = deque(maxlen=_LOOKS)
        self.due_s: float | None = now_s() + _EVERY_S if _is_telling(claim) else None

    def look(self) -> bool:
        """Look when it is time; return whether the claim now has what was there."""
        if self.due_s is None or self._now_s() < self.due_s:
            return False
        self.due_s = self._now_s() + _EVERY_S
        try:
            seen, load_pct = self._claim.gpu.achieved(), self._claim.gpu.load_pct()
            if not load_pct:
                self._samples.clear()
                return False
            self._samples.append(seen)
            if len(self._samples) == _LOOKS:
                self._claim.adopt(preexisting_lock_mhz(list(self._samples), self._claim.gpu.capabilities()))
                self.due_s = None
        except DeviceError:
            self._samples.clear()  # the next look tells
        return self.due_s is None


def _is_telling(claim: GpuClaim) -> bool:
    """Whether looks can prove anything: the device reports load and no lock, and all journals are seen."""
    try:
        claim.gpu.standing_lock_mhz()
    except DeviceUnsupportedError:
        return sees_the_node() and _tells_its_load(claim)
    except DeviceError:
        return False
    return False


def _tells_its_load(claim: GpuClaim) -> bool:
    try:
        return claim.gpu.load_pct() is not None
    except DeviceError:
        return False
