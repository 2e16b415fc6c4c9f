"""One client served to its end: its requests, what is due, who else may end it; then the GPU is restored.

The node's service has a thread for each client, so that a GPU with a slow driver holds up nobody else's.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping

from perseus_ds.device.guard.serving.client_connection import ClientConnection
from perseus_ds.errors import DeviceUnavailableError

_IDLE_S = 60.0


def serve(connection: ClientConnection, ends: Mapping[int, str]) -> bool:
    """Serve until the client is gone or one of the descriptors ``ends``, each with its reason, is readable.

    Returns whether the GPU, if one was taken, has its clock back.
    """
    try:
        while _turn(connection, ends):
            pass
    finally:
        failure = connection.end()
    return failure is None


def _turn(connection: ClientConnection, ends: Mapping[int, str]) -> bool:
    """Wait for something to happen and do what it asks for; return whether to go on."""
    launchers = {launcher.fileno(): launcher for launcher in connection.launchers}
    ready = _readable({connection.socket.fileno(), *ends, *launchers}, _patience_s(connection))
    for ended in ready & ends.keys():
        connection.left = ends[ended]
        return False
    for gone in ready & launchers.keys():
        connection.give_up(
            DeviceUnavailableError(
                f"the job's launcher is gone ({launchers[gone]}) and nobody is left to end its ranks",
                hint="control is given up, the clock is put back",
            )
        )
        return False
    if connection.socket.fileno() in ready and not connection.receive():
        return False
    connection.step()
    if connection.idle:
        connection.left = "the client took no GPU"
    return not connection.idle


def _patience_s(connection: ClientConnection) -> float:
    due_s = connection.due_s()
    return _IDLE_S if due_s is None else min(_IDLE_S, max(0.0, due_s - time.monotonic()))


def _readable(descriptors: set[int], for_s: float) -> set[int]:
    """Wait for a descriptor to become readable; whole milliseconds are polled for, the rest is slept."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    whole_ms = int(1000 * for_s)
    if not whole_ms and for_s:
        time.sleep(for_s)
    return {descriptor for descriptor, _ in poll.poll(whole_ms)}
