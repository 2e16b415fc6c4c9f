"""The device's clock against the host's: an offset that is followed, from points that both have seen."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_KEPT = 64
_APART_S = 1.0
_FAR_S = 10.0
_MOST_DRIFT = 500e-6
_JUMP_S = 5e-3
_LATE_IN_A_ROW = 8
_TRUSTED = 8  # of so many, some were seen as soon as they came


@dataclass(slots=True)
class _Tie:
    """A point of the device's time and the offset (host - device): between ``least_s`` and ``most_s``."""

    device_s: float
    least_s: float
    most_s: float


class TimeTies:
    """Device seconds to host seconds.

    A point of a stream comes after the host has issued it and before the host has seen it. How late it is
    seen varies from a few microseconds to whatever a busy host does; the least of many is the offset. Both
    clocks drift against each other by parts per million. The offset is a line, through the least of the older
    and of the newer half of about a minute.

    An offset that steps (the host was suspended, the device reset, a checkpoint restored) begins a new
    ``era``: nothing is known of what lies across.

    Source: the least delay of many, as in D. Mills, RFC 5905 (clock filter).
    """

    def __init__(self) -> None:
        self.era = 0
        self._ties: deque[_Tie] = deque(maxlen=_KEPT)
        self._line = (0.0, 0.0, 0.0)
        self._late = self._added = 0

    @property
    def empty(self) -> bool:
        """Whether nothing ties the two clocks yet."""
        return not self._ties

    @property
    def drift(self) -> float:
        """Host seconds that a device second lasts, less one."""
        return self._line[2]

    def host_s(self, device_s: float) -> float:
        """Return the host's time of a moment of the device."""
        at_s, offset_s, drift = self._line
        return device_s + offset_s + drift * (device_s - at_s)

    def forget(self) -> None:
        """Begin a new era: the device's clock starts again."""
        self.era += 1
        self._late = self._added = 0
        self._ties.clear()

    def add(self, device_s: float, *, issued_s: float, seen_s: float) -> None:
        """Take in one point: issued and seen by the host at these moments."""
        tie = _Tie(device_s, issued_s - device_s, seen_s - device_s)
        if self._ties and self._stepped(tie):
            self.forget()
        self._added += 1
        last = self._ties[-1] if self._ties else None
        if last is not None and device_s - last.device_s < _APART_S:
            last.least_s, last.most_s = max(last.least_s, tie.least_s), min(last.most_s, tie.most_s)
        else:
            self._ties.append(tie)
        self._fit(device_s)

    def _stepped(self, tie: _Tie) -> bool:
        """Whether the offset cannot be what it was; one that is only seen late may be, for a while."""
        expected_s = self.host_s(tie.device_s) - tie.device_s
        trusted_s = expected_s if self._added >= _TRUSTED else self._ties[-1].least_s
        if tie.most_s < trusted_s - _JUMP_S or tie.least_s > expected_s + _JUMP_S:
            return True
        self._late = self._late + 1 if tie.most_s > expected_s + _JUMP_S else 0
        return self._late >= _LATE_IN_A_ROW

    def _fit(self, at_s: float) -> None:
        ties, drift = list(self._ties), self._line[2]

        def least(part: list[_Tie]) -> _Tie:
            return min(part, key=lambda tie: tie.most_s + drift * (at_s - tie.device_s))

        half = len(ties) // 2
        if half:
            old, new = least(ties[:half]), least(ties[half:])
            if new.device_s - old.device_s > _FAR_S:
                slope = (new.most_s - old.most_s) / (new.device_s - old.device_s)
                drift = max(-_MOST_DRIFT, min(_MOST_DRIFT, slope))
        best = least(ties)
        self._line = at_s, best.most_s + drift * (at_s - best.device_s), drift
