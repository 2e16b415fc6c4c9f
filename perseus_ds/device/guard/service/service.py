"""``perseus-ds guardd``: the guard as a service of the node, for jobs without the right to set clocks."""

from __future__ import annotations

import contextlib
import grp
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perseus_ds.device.guard.claim.openers import OpenGpu, open_gpu
from perseus_ds.device.guard.claim.repair import Repair, repair
from perseus_ds.device.guard.protocol import KIND
from perseus_ds.device.guard.service.policy import Peer, Policy
from perseus_ds.device.guard.serving.client_connection import ClientConnection
from perseus_ds.device.guard.serving.serve import serve
from perseus_ds.device.guard.serving.signals import ending_signals
from perseus_ds.errors import ConfigError, DevicePermissionError, DeviceUnavailableError

DEFAULT_SOCKET = Path("/run/perseus-guardd/guardd.sock")

_MODE = 0o660
_BACKLOG = 128
_MOST_CLIENTS = 512
_PAUSE_S = 0.05
_SWITCH_S = 0.001  # a client that floods the service gives the interpreter away as often


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where the service listens, who may speak to it (``group`` of the socket), and what they may do."""

    path: Path = DEFAULT_SOCKET
    group: str | None = None
    policy: Policy = field(default_factory=Policy)


class Service:
    """A listening socket, and a thread for each client. `start` makes good what an earlier guard left."""

    def __init__(self, settings: ServiceSettings, *, open_gpu: OpenGpu = open_gpu) -> None:
        self._settings = settings
        self._open_gpu = open_gpu
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)  # readable from the end of the service on
        self._clients: list[threading.Thread] = []
        self._restored: list[bool] = []

    def start(self) -> tuple[Repair, ...]:
        """Repair, then listen.

        Raises:
            DeviceUnavailableError: another service listens there.
            DevicePermissionError: the socket cannot be made.
            ConfigError: no such group.
        """
        repairs = repair(open_gpu=self._open_gpu)
        self._listener = _listener(self._settings.path, self._settings.group)
        return repairs

    def run(self) -> int:
        """Serve until a signal; return how many GPUs could not be put back."""
        sys.setswitchinterval(_SWITCH_S)
        with ending_signals() as signalled:
            try:
                self._welcome_until(signalled)
            finally:
                os.eventfd_write(self._stop, 1)
                for client in self._clients:
                    client.join()
                os.close(self._stop)
                self._listener.close()
                self._settings.path.unlink(missing_ok=True)
        return self._restored.count(False)

    def _welcome_until(self, signalled: int) -> None:
        poll = select.poll()
        for descriptor in (self._listener.fileno(), signalled):
            poll.register(descriptor, select.POLLIN)
        while signalled not in {descriptor for descriptor, _ in poll.poll()}:
            self._welcome()

    def _welcome(self) -> None:
        """Take one client in, unless there are too many."""
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, for one: the clients that are there come first
            time.sleep(_PAUSE_S)
            return
        self._clients = [client for client in self._clients if client.is_alive()]
        if len(self._clients) >= _MOST_CLIENTS:
            sock.close()
            return
        client = threading.Thread(target=self._serve, args=(sock,), name="perseus-guardd-client")
        self._clients.append(client)
        client.start()

    def _serve(self, sock: socket.socket) -> None:
        connection = ClientConnection(sock, peer_of(sock), self._settings.policy, self._open_gpu)
        restored = False
        try:
            restored = serve(connection, self._stop)
        finally:
            self._restored.append(restored)


def peer_of(sock: socket.socket) -> Peer:
    """Ask the kernel who is at the other end.

    Source: SO_PEERCRED, unix(7): the credentials at the time of connect, not to be forged.
    """
    layout = struct.Struct("iii")
    pid, uid, gid = layout.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
    return Peer(pid, uid, gid, _cgroup_of(pid))


def _cgroup_of(pid: int) -> str:
    """The control group of a process (version 2), which names its container or job."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                return line.removeprefix("0::")
    return ""


def _listener(path: Path, group: str | None) -> socket.socket:
    gid = -1 if group is None else _gid(group)
    listener = socket.socket(socket.AF_UNIX, KIND)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _clear(path)
        before = os.umask(0o777 & ~_MODE)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        os.chown(path, -1, gid)
        path.chmod(_MODE)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise DevicePermissionError(f"cannot listen on {path}: {error}") from error
    return listener


def _clear(path: Path) -> None:
    """Remove the socket of a service that is gone.

    Raises:
        DeviceUnavailableError: it is not gone.
    """
    if not path.exists():
        return
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


def run_service(
    settings: ServiceSettings, *, ready: Callable[[tuple[Repair, ...]], None] = lambda _: None
) -> int:
    """Run the service to its end; return the number of GPUs that could not be put back.

    ``ready`` is called once it listens, with what an earlier service had left and was put back.

    Raises:
        PerseusError: it cannot listen.
    """
    service = Service(settings)
    ready(service.start())
    return service.run()
