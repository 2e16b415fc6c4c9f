"""A service that was gone: how soon a job that looks for it meets it again."""

from __future__ import annotations

import socket
import threading

import pytest

from perseus_ds.errors import DeviceError
from perseus_ds.guard.client import reacquire


class Passing(threading.Event):
    """Waits that take no time but their own count; a job ends after ``ends_s``."""

    def __init__(self, ends_s: float = 1e9) -> None:
        super().__init__()
        self.now_s, self._ends_s = 0.0, ends_s

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s += timeout
        return self.now_s > self._ends_s


@pytest.mark.parametrize("gone_s", [0.0, 0.05, 0.31, 0.93, 1.45, 4.0, 60.0])
def test_a_service_that_is_back_is_met_soon(gone_s: float) -> None:
    over, tries = Passing(), 0

    class BackError(Exception):
        """It was there."""

    def connect() -> socket.socket:
        nonlocal tries
        tries += 1
        if over.now_s >= gone_s:
            raise BackError
        raise DeviceError("nobody is there")

    with pytest.raises(BackError):
        reacquire(connect, b"", over=over)
    assert over.now_s - gone_s <= 0.1 + 1e-9
    assert tries <= 20 + 10 * gone_s


def test_a_job_that_ends_asks_no_more() -> None:
    over = Passing(ends_s=3.0)

    def connect() -> socket.socket:
        raise DeviceError("nobody is there")

    assert reacquire(connect, b"", over=over) is None
