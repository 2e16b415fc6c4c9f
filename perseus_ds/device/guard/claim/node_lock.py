"""One writer per GPU on a node, also between guards whose folders are not the same.

A name in the abstract namespace of Unix sockets: the kernel frees it however its holder ends, and it is
seen by all processes that share the node's network namespace, whatever folders, mounts and process numbers
they see. Whoever may take names could hold one for no good, so a holder without the right to set clocks
is not believed.

Source: unix(7), "Abstract sockets".
"""

from __future__ import annotations

import os
import socket
import struct

from perseus_ds.device.rights import may_set_clocks
from perseus_ds.errors import DeviceUnavailableError


class NodeLock:
    """The name of one GPU, held until `release` or the end of this process."""

    def __init__(self, uuid: str) -> None:
        """Take the name at once or not at all.

        Raises:
            DeviceUnavailableError: somebody with the right to set clocks holds it.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(_name(uuid))
            self._socket.listen(1)
        except OSError as error:
            self._socket.close()
            holder = _holder(uuid)
            if holder is not None:
                raise DeviceUnavailableError(f"the clock of {uuid} is held by {holder}") from error

    def release(self) -> None:
        """Let go; the second call does nothing."""
        self._socket.close()


def _name(uuid: str) -> str:
    return f"\0perseus_ds/{uuid}"


def _holder(uuid: str) -> str | None:
    """Who holds the name, as the kernel says; ``None``: nobody who is believed, or nobody any more."""
    layout = struct.Struct("iii")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(_name(uuid))
        except BlockingIOError:
            return "a guard that is asked by many at once"
        except OSError:
            return None
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    pid, uid, _ = layout.unpack(credentials)
    if uid not in {0, os.geteuid()} and not may_set_clocks(pid):
        return None
    return f"another guard of this node (user {uid}, process {pid})"
