"""``perseus-ds guardd``: the guard as a service of the node, for jobs without the right to set clocks."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.errors import (
    ConfigError,
    DeviceError,
    DevicePermissionError,
    DeviceUnavailableError,
    DeviceUnsupportedError,
    PerseusError,
)
from perseus_ds.guard.claim import OpenGpu, open_gpu
from perseus_ds.guard.connection import ClientConnection, Terms, ending_signals, go_first, serve
from perseus_ds.guard.log import LeaseLog, log_event
from perseus_ds.guard.policy import Caller, Peer, Policy, caller_of, may_open, refusal_of
from perseus_ds.guard.protocol import (
    KIND,
    MAX_BYTES,
    MalformedError,
    Message,
    decode,
    encode,
    refusal,
    refused,
)
from perseus_ds.guard.repair import Repair, repair

# The socket that the service listens on: nobody's file but ours is ever removed for it.

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


# What the service manager is informed of: ready, reloading, stopping, and that the service is alive.
#
# Source: sd_notify(3), sd_watchdog_enabled(3): datagrams to the socket that ``NOTIFY_SOCKET`` names.


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


DEFAULT_SOCKET = Path("/run/perseus-guardd/guardd.sock")

_MOST_CLIENTS = 1024
_MOST_IDLE_OF_A_USER = 256  # connections that have taken no GPU; those that have are as many as GPUs
_MOST_SIGNALS = 4096
_PAUSE_S = 0.05
_SWITCH_S = 0.001  # a client that floods the service gives the interpreter away as often


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where the service listens, who may connect to it (``group`` of the socket), and what they may do.

    ``reread`` reads the rules anew when SIGHUP comes; without it SIGHUP ends the service.
    """

    path: Path = DEFAULT_SOCKET
    group: str | None = None
    policy: Policy = field(default_factory=Policy)
    backend: str = "nvml"
    reread: Callable[[], Policy] | None = None


@dataclass(frozen=True, slots=True)
class _Client:
    thread: threading.Thread
    connection: ClientConnection


class Service:
    """A listening socket, and a thread for each client. `start` makes good what an earlier guard left."""

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        open_gpu: OpenGpu = open_gpu,
        may_open: Callable[[Peer, str], bool] = may_open,
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._open_gpu = open_gpu
        self._terms = Terms(
            lambda: self._policy,
            open_gpu,
            backend=settings.backend,
            may_open=may_open,
            status=self._status,
        )
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)  # readable from the end of the service on
        self._clients: list[_Client] = []
        self._restored: list[bool] = []
        self._taken_in_so_far = 0

    def start(self) -> tuple[Repair, ...]:
        """Repair, then listen.

        Raises:
            DeviceUnavailableError: another service listens there.
            DevicePermissionError: the socket cannot be made.
            ConfigError: no such group.
        """
        repairs = repair(open_gpu=self._open_gpu)
        self._listener = Listener(self._settings.path, self._settings.group)
        return repairs

    def run(self, ready: Callable[[], None] = lambda: None) -> int:
        """Serve until a signal; return how many GPUs could not be put back.

        ``ready`` is called when signals are listened for.
        """
        sys.setswitchinterval(_SWITCH_S)
        go_first()
        with ending_signals() as signalled:
            try:
                ready()
                self._welcome_until(signalled)
            finally:
                notify("STOPPING=1")
                leases = sum(client.connection.has_taken for client in self._clients)
                log_event("stopping", f"the service ends, {leases} leases with it", leases=leases)
                os.eventfd_write(self._stop, 1)
                for client in self._clients:
                    client.thread.join()
                os.close(self._stop)
                self._listener.close()
        return self._restored.count(False)

    def _welcome_until(self, signalled: int) -> None:
        poll = select.poll()
        for descriptor in (self._listener.socket.fileno(), signalled):
            poll.register(descriptor, select.POLLIN)
        every_s = beat_every_s()
        notify("READY=1")
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(None if every_s is None else 1000 * every_s)}
            notify("WATCHDOG=1")
            if signalled in ready and not self._reloaded(os.read(signalled, _MOST_SIGNALS)):
                return
            if self._listener.socket.fileno() in ready:
                self._welcome()

    def _reloaded(self, signals: bytes) -> bool:
        """Read the rules anew if that is all that is asked; what is wrong with them leaves those in force."""
        if self._settings.reread is None or set(signals) != {signal.SIGHUP}:
            return False
        notify_reloading()
        try:
            self._policy = self._settings.reread()
        except PerseusError as error:
            log_event("rules_kept", f"rules are not reloaded, those in force stay: {error}", logging.ERROR)
        else:
            rules = len(self._policy.rules)
            log_event("rules_reloaded", f"rules are reloaded: {rules} in force, leases go on", rules=rules)
        notify("READY=1")
        return True

    def _status(self, peer: Peer) -> Iterator[Message]:
        """Report all leases to root and ourselves, and to everybody else their own."""
        leases = [one for client in self._clients if (one := client.connection.lease) is not None]
        yield from (one for one in leases if peer.uid in {0, os.geteuid(), one["uid"]})
        rules, floor_mhz = len(self._policy.rules), self._policy.floor_mhz
        yield {"is": "status", "version": __version__, "rules": rules, "floor_mhz": floor_mhz}

    def _welcome(self) -> None:
        """Take one client in, or refuse it with the reason."""
        try:
            sock, _ = self._listener.socket.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, for one: the clients that are there come first
            time.sleep(_PAUSE_S)
            return
        try:
            caller = caller_of(sock)
        except OSError:  # gone by now
            sock.close()
            return
        why_not = self._why_not(caller.peer) or self._taken_in(sock, caller)
        if why_not is not None:
            LeaseLog(caller.peer).refused(why_not)
            owner = caller.peer.uid in {0, os.geteuid()}  # may know, also where no rule speaks of them
            _refuse(sock, [refusal(why_not), *(self._status(caller.peer) if owner else ())])
            caller.close()

    def _why_not(self, peer: Peer) -> DeviceError | None:
        """Give the reason why a client is not taken in: no rule names it, or there are too many."""
        if not self._policy.admits(peer):
            return refusal_of(peer)
        self._clients = [client for client in self._clients if client.thread.is_alive()]
        idle = sum(
            not one.connection.has_taken and one.connection.peer.uid == peer.uid for one in self._clients
        )
        if idle >= _MOST_IDLE_OF_A_USER or len(self._clients) >= _MOST_CLIENTS:
            return DeviceUnavailableError(f"{peer}: too many connections", hint="close those without a GPU")
        return None

    def _taken_in(self, sock: socket.socket, caller: Caller) -> DeviceError | None:
        """Give a client a thread of its own; a thread that cannot be had is this client's refusal alone."""
        connection = ClientConnection(sock, caller.peer, self._terms)
        self._taken_in_so_far += 1
        connection.log = LeaseLog(caller.peer, self._taken_in_so_far)
        thread = threading.Thread(target=self._serve, args=(connection, caller), name="perseus-guardd-client")
        self._clients.append(_Client(thread, connection))  # before it counts those that have taken a GPU
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self._clients.pop()
            return DeviceUnavailableError(f"the service cannot serve one more client: {error}")
        return None

    def _serve(self, connection: ClientConnection, caller: Caller) -> None:
        restored = False
        ends = {self._stop: "the service ends"}
        if caller.pidfd >= 0:
            ends[caller.pidfd] = "the client's process ended"
        try:
            restored = serve(connection, ends)
        finally:
            caller.close()
            self._restored.append(restored)


def _refuse(sock: socket.socket, words: Iterable[Message]) -> None:
    """Send the reason, and what there is to know, if there is room, and hang up."""
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        for one in words:
            sock.send(encode(one))
    sock.close()


def run_service(
    settings: ServiceSettings, *, ready: Callable[[tuple[Repair, ...]], None] = lambda _: None
) -> int:
    """Run the service to its end; return the number of GPUs that could not be put back.

    ``ready`` is called once it listens, with what an earlier service had left and was put back.

    Raises:
        PerseusError: it cannot listen.
    """
    service = Service(settings)
    repairs = service.start()
    return service.run(lambda: ready(repairs))


# Ask the node's service who holds which GPU: for an operator, beside all jobs.

_ANSWER_S = 20.0
_OLDER = "take a GPU first"
"""What releases before this question answer."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The service's release, rules and leases, as it reports them."""

    version: str
    rules: int
    floor_mhz: int
    leases: tuple[Message, ...]


def service_status(connect: Callable[[], socket.socket]) -> ServiceStatus:
    """Ask once.

    Raises:
        DeviceError: it is not there, does not answer, refuses, or is older than the question.
    """
    leases: list[Message] = []
    refusal: DeviceError | None = None
    with connect() as sock:
        sock.settimeout(_ANSWER_S)
        try:
            with contextlib.suppress(OSError):  # who hung up at once has said what there is to know
                sock.send(encode({"do": "status"}))
            while packet := sock.recv(MAX_BYTES):
                answer = decode(packet)
                if answer.get("is") == "lease":
                    leases.append(answer)
                elif answer.get("is") == "status":
                    return _status(answer, leases)
                elif answer.get("message") == _OLDER:
                    break
                else:
                    refusal = refused(answer)
        except (OSError, MalformedError) as error:
            raise refusal or DeviceUnavailableError("the service does not answer") from error
    raise refusal or DeviceUnsupportedError("the service is of an older release: it does not list its leases")


def _status(answer: Message, leases: list[Message]) -> ServiceStatus:
    rules, floor_mhz = answer.get("rules"), answer.get("floor_mhz")
    return ServiceStatus(
        version=str(answer.get("version")),
        rules=rules if isinstance(rules, int) else 0,
        floor_mhz=floor_mhz if isinstance(floor_mhz, int) else 0,
        leases=tuple(leases),
    )
