"""A port for a server that a test starts."""

import secrets
import socket

_LOWEST, _MANY = 20_000, 12_000


def free_port() -> int:
    """A port that nobody uses just now, below those that the system gives to whoever connects.

    A launcher takes seconds to come to it: one of those others may be taken by then.
    """
    while True:
        port = _LOWEST + secrets.randbelow(_MANY)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
