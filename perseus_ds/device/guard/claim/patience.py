"""The one schedule of tries: soon, then ever less often, until it succeeds, cannot, or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from perseus_ds.errors import DeviceError, DeviceLostError, DevicePermissionError, DeviceUnsupportedError

T = TypeVar("T")

WAY_BACK_S = 30.0  # for a clock that has to be put back
_FIRST_PAUSE_S, _GROWTH = 0.005, 1.6
_LONGEST_PAUSE_S = 0.1  # opening is some twenty calls: at 20 % errors one try in thirty succeeds
_FINAL = (DeviceLostError, DevicePermissionError, DeviceUnsupportedError)


def may_pass(error: DeviceError) -> bool:
    """Whether a refusal may be a moment's: no right, no GPU and no such clock are not."""
    return not isinstance(error, _FINAL)


def whatever(error: DeviceError) -> bool:
    """On the way back no refusal is final: what the driver did once it can do again."""
    del error
    return True


def pauses_s() -> Iterator[float]:
    """The waits between tries, without end."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)


def insist(act: Callable[[], T], *, for_s: float, passes: Callable[[DeviceError], bool] = may_pass) -> T:
    """Do something until it succeeds.

    Raises:
        DeviceError: it cannot succeed, or did not in this time.
    """
    until_s = time.monotonic() + for_s
    for pause_s in pauses_s():
        try:
            return act()
        except DeviceError as error:
            if not passes(error) or time.monotonic() + pause_s > until_s:
                raise
        time.sleep(pause_s)
    raise AssertionError("the pauses have no end")
