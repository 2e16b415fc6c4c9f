"""The socket that the service listens on: nobody's file but ours is ever removed for it."""

from __future__ import annotations

import contextlib
import grp
import os
import socket
import stat
from pathlib import Path

from perseus_ds.device.guard.protocol import KIND
from perseus_ds.errors import ConfigError, DevicePermissionError, DeviceUnavailableError

_MODE = 0o660
_BACKLOG = 128


class Listener:
    """A listening socket at a path, for the members of a group."""

    def __init__(self, path: Path, group: str | None) -> None:
        """Listen.

        Raises:
            DeviceUnavailableError: another service listens there.
            DevicePermissionError: the socket cannot be made, or something else lies there.
            ConfigError: no such group.
        """
        self._path = path
        gid = -1 if group is None else _gid(group)
        self.socket = socket.socket(socket.AF_UNIX, KIND)
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _clear(path)
            _bind(self.socket, path, gid)
            self.socket.listen(_BACKLOG)
            self.socket.setblocking(False)
            self._inode = path.lstat().st_ino
        except OSError as error:
            self.socket.close()
            raise DevicePermissionError(f"cannot listen on {path}: {error}") from error
        except (DevicePermissionError, DeviceUnavailableError):
            self.socket.close()
            raise

    def close(self) -> None:
        """Stop listening, and remove the socket if it is still ours."""
        self.socket.close()
        with contextlib.suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()


def _bind(sock: socket.socket, path: Path, gid: int) -> None:
    before = os.umask(0o777 & ~_MODE)
    try:
        sock.bind(str(path))
    finally:
        os.umask(before)
    if path.lstat().st_gid != gid != -1:
        os.chown(path, -1, gid)
    path.chmod(_MODE)


def _clear(path: Path) -> None:
    """Remove the socket of a service that is gone.

    Raises:
        DeviceUnavailableError: it is not gone.
        DevicePermissionError: what lies there is no socket.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise DevicePermissionError(f"{path} is there and is no socket", hint="give --socket another path")
    with socket.socket(socket.AF_UNIX, KIND) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise DeviceUnavailableError(f"another guardd listens on {path}")


def _gid(group: str) -> int:
    """A group by name or number; in a container it may have no name."""
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"no group {group!r} on this node") from None
