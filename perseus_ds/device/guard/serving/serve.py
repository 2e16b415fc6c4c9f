"""One client served to its end: its requests, what is due, who else may end it; then the GPU is restored.

The node's service has a thread for each client, so that a GPU with a slow driver holds up nobody else's.
"""

from __future__ import annotations

import select
import time

from perseus_ds.device.guard.complain import complain_not_restored
from perseus_ds.device.guard.serving.client_connection import ClientConnection
from perseus_ds.errors import DeviceUnavailableError

_IDLE_S = 60.0


def serve(connection: ClientConnection, *ends: int) -> bool:
    """Serve until the client is gone or one of the descriptors ``ends`` becomes readable.

    Returns whether the GPU, if one was taken, is as it was found.
    """
    try:
        while _turn(connection, frozenset(ends)):
            pass
    finally:
        failure = connection.end()
        if failure is not None:
            complain_not_restored(failure)
    return failure is None


def _turn(connection: ClientConnection, ends: frozenset[int]) -> bool:
    """Wait for something to happen and do what it asks for; return whether to go on."""
    launchers = {launcher.fileno(): launcher for launcher in connection.launchers}
    ready = _readable({connection.socket.fileno(), *ends, *launchers}, _patience_s(connection))
    if ready & ends:
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
