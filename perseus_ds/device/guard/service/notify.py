"""What the service manager is informed of: ready, reloading, stopping, and that the service is alive.

Source: sd_notify(3), sd_watchdog_enabled(3): datagrams to the socket that ``NOTIFY_SOCKET`` names.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time


def notify(state: str) -> None:
    """Inform it; without a service manager nothing is done."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.send(state.encode())


def notify_reloading() -> None:
    """Announce that rules are read anew; ``READY=1`` ends it."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def beat_every_s() -> float | None:
    """How often the service manager wants a sign of life; None: not at all."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 2e6 or None
