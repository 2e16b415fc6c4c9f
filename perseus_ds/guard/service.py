"""``perseus-ds guardd``: the guard as a service of the node, for jobs without the right to set clocks."""

from __future__ import annotations

import contextlib
import grp
import json
import logging
import os
import queue
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from perseus_ds import __version__
from perseus_ds.errors import (
    ConfigError,
    DeviceError,
    DevicePermissionError,
    DeviceUnavailableError,
    PerseusError,
)
from perseus_ds.guard.claim import OpenGpu, open_gpu
from perseus_ds.guard.connection import ClientConnection, Server, ending_signals, raise_priority, serve
from perseus_ds.guard.log import ERRORS, LOGGER, log_event, print_line
from perseus_ds.guard.policy import Peer, Policy, control_groups
from perseus_ds.guard.protocol import KIND, Message, Value, encode, refusal
from perseus_ds.guard.repair import repair
from perseus_ds.guard.rules import read_rules

_SO_PEERPIDFD = 77  # linux/socket.h, since 6.5
_CREDENTIALS = struct.Struct("iii")
_DESCRIPTOR = struct.Struct("i")
_CGROUPS = Path("/sys/fs/cgroup")
_TRY_S = 5.0
_MAY, _CANNOT_JOIN = 4, 3  # not 0, which is also reported where children are reaped by others
_TRY = f"""
device=$1; shift
for group; do echo $$ > "$group" || {{ echo "$group"; exit {_CANNOT_JOIN}; }}; done
[ -c "$device" ] && exec 3<> "$device" && exit {_MAY}
"""
_SOCKET_MODE = 0o660
_BACKLOG = 128
_MAX_CLIENTS = 1024
_MAX_IDLE_OF_A_USER = 256  # connections that have taken no GPU; those that have are as many as GPUs
_MAX_SIGNALS = 4096
_PAUSE_S = 0.05
_MAX_LINES_WAITING = 1024
_MAX_ALIKE = 32  # lines of one event of one user within a period: a client that floods us fills no disk
_PERIOD_S = 10.0
_FAREWELL_S = 1.0
_PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}  # of journald, sd-daemon(3)
_SWITCH_S = 0.001  # a client that floods the service gives the interpreter away as often


def peer_of(sock: socket.socket) -> tuple[Peer, int]:
    """Ask the kernel who connected, and for a descriptor that becomes readable when it ends (-1: none).

    A process number may be given to another process at any moment: a control group is believed only if the
    process still lived after that was read.

    Source: unix(7), SO_PEERCRED: the credentials at the time of connect, not to be forged.
    """
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    pidfd = -1
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _DESCRIPTOR.size)
        pidfd = int(_DESCRIPTOR.unpack(raw)[0])
    except OSError:  # before 6.5: by its number, at once
        with contextlib.suppress(OSError, AttributeError):
            pidfd = os.pidfd_open(pid)
    groups, ended = control_groups(pid), select.poll()  # select() takes no descriptor above 1023
    if pidfd >= 0:
        ended.register(pidfd, select.POLLIN)
    if pidfd < 0 or ended.poll(0):
        groups = {}
    return Peer(pid, uid, groups.get("", ""), groups.get("devices", "")), pidfd


def may_open(peer: Peer, device: str) -> bool:
    """Return whether a client's control groups let it open a device file; a `DeviceError`: it is not known.

    Docker, Kubernetes and Slurm (``ConstrainDevices``) give a job some of a node's GPUs by a rule of the
    kernel on opening device files: a list in version 1 of control groups, a BPF program in version 2. Neither
    can be read from everywhere, and both can be tried by a process that has joined the client's groups.

    Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst, "Device controller".
    """
    unknown = f"cannot find out which GPUs {peer} may open"
    # the files by which a process joins the groups, of either version
    places = (
        (_CGROUPS / "devices", peer.devices),
        (_CGROUPS, peer.cgroup),
        (_CGROUPS / "unified", peer.cgroup),
    )
    files = [root / path.lstrip("/") / "cgroup.procs" for root, path in places if path.startswith("/")]
    groups = [file for file in files if ".." not in file.parts and file.exists()]
    if not groups:
        hint = "the service needs the node's process numbers and /sys/fs/cgroup"
        raise DevicePermissionError(f"{unknown}: its control group is not visible from here", hint=hint)
    command = ["/bin/sh", "-c", _TRY, "sh", device, *map(str, groups)]
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program; what varies are its arguments
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRY_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DevicePermissionError(f"{unknown}: {error}") from error
    if tried.returncode == _CANNOT_JOIN:
        raise DevicePermissionError(f"{unknown}: {tried.stdout.strip()} cannot be joined")
    if not tried.returncode:
        raise DevicePermissionError(f"{unknown}: SIGCHLD is ignored in the service")
    return tried.returncode == _MAY


class Service:
    """A listening socket, and a thread for each client.

    ``group`` is the socket's. ``rules`` is a file that SIGHUP reads anew; without it SIGHUP ends the service.
    """

    def __init__(
        self,
        path: Path,
        policy: Policy,
        *,
        group: str | None = None,
        backend: str = "nvml",
        rules: Path | None = None,
        open_gpu: OpenGpu = open_gpu,
        may_open: Callable[[Peer, str], bool] = may_open,
    ) -> None:
        self._path, self._group, self._rules = path, group, rules
        self._server = Server(policy, backend, open_gpu=open_gpu, may_open=may_open, status=self._status)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)  # readable from the end of the service on
        self._clients: list[tuple[threading.Thread, ClientConnection]] = []
        self._restored: list[bool] = []
        self._accepted = 0

    def run(self) -> int:
        """Restore what an earlier guard left, then serve until a signal; return how many GPUs could not be.

        Raises why it cannot listen.
        """
        for one in repair(open_gpu=self._server.open_gpu):
            log_event("repaired", str(one), gpu=one.uuid, clock_mhz=one.clock_mhz, why=one.outcome.value)
        with listen(self._path, self._group) as listener, ending_signals() as signalled:
            sys.setswitchinterval(_SWITCH_S)
            raise_priority()
            try:
                log_event("listening", f"listening on {self._path}", version=__version__, **self._in_force())
                self._accept_until(signalled, listener)
            finally:
                notify("STOPPING=1")
                leases = sum(connection.has_taken for _, connection in self._clients)
                log_event("stopping", f"the service ends, {leases} leases with it", leases=leases)
                os.eventfd_write(self._stop, 1)
                for thread, _ in self._clients:
                    thread.join()
                os.close(self._stop)
        return self._restored.count(False)

    def _status(self, peer: Peer) -> Iterator[Message]:
        """Report all leases to root and ourselves, and to everybody else their own."""
        leases = [lease for _, connection in self._clients if (lease := connection.lease) is not None]
        yield from (lease for lease in leases if peer.uid in {0, os.geteuid(), lease["uid"]})
        yield {"is": "status", "version": __version__, **self._in_force()}

    def _in_force(self) -> dict[str, int]:
        return {"rules": len(self._server.policy.rules), "floor_mhz": self._server.policy.floor_mhz}

    def _accept_until(self, signalled: int, listener: socket.socket) -> None:
        poll = select.poll()
        for descriptor in (listener.fileno(), signalled):
            poll.register(descriptor, select.POLLIN)
        every_s = watchdog_period_s()
        notify("READY=1")
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(None if every_s is None else 1000 * every_s)}
            notify("WATCHDOG=1")
            if signalled in ready and not self._reload(os.read(signalled, _MAX_SIGNALS)):
                return
            if listener.fileno() in ready:
                self._accept(listener)

    def _reload(self, signals: bytes) -> bool:
        """Read the rules anew if that is all that is asked; what is wrong with them leaves those in force."""
        if self._rules is None or set(signals) != {signal.SIGHUP}:
            return False
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            self._server.policy = policy_of(self._rules)
        except PerseusError as error:
            log_event("rules_kept", f"rules are not reloaded, those in force stay: {error}", logging.ERROR)
        else:
            rules = len(self._server.policy.rules)
            log_event("rules_reloaded", f"rules are reloaded: {rules} in force, leases go on", rules=rules)
        notify("READY=1")
        return True

    def _accept(self, listener: socket.socket) -> None:
        """Start to serve one client, or refuse it with the reason."""
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, for one: the clients that are there come first
            time.sleep(_PAUSE_S)
            return
        try:
            peer, pidfd = peer_of(sock)
        except OSError:  # gone by now
            sock.close()
            return
        try:
            self._start_client(sock, peer, pidfd)
        except DeviceError as error:
            why_not = error
        else:
            return
        words, who = f"refused to {peer}: {why_not.message}", peer.fields()
        log_event("lease_refused", words, logging.WARNING, why=why_not.message, **who)
        is_owner = peer.uid in {0, os.geteuid()}  # may know, also where no rule is about them
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            for message in (refusal(why_not), *(self._status(peer) if is_owner else ())):
                sock.send(encode(message))
        sock.close()
        if pidfd >= 0:
            os.close(pidfd)

    def _start_client(self, sock: socket.socket, peer: Peer, pidfd: int) -> None:
        """Give a client a thread of its own, or refuse it: no rule names it, or there are too many."""
        self._server.policy.check_connection(peer)
        self._clients = [(thread, connection) for thread, connection in self._clients if thread.is_alive()]
        idle = sum(not one.has_taken and one.peer.uid == peer.uid for _, one in self._clients)
        if idle >= _MAX_IDLE_OF_A_USER or len(self._clients) >= _MAX_CLIENTS:
            raise DeviceUnavailableError(f"{peer}: too many connections", hint="close those without a GPU")
        self._accepted += 1
        connection = ClientConnection(sock, peer, self._server, self._accepted)
        thread = threading.Thread(target=self._serve, args=(connection, pidfd), name="perseus-guardd-client")
        self._clients.append((thread, connection))  # before it counts those that have taken a GPU
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self._clients.pop()
            raise DeviceUnavailableError(f"the service cannot serve one more client: {error}") from error

    def _serve(self, connection: ClientConnection, pidfd: int) -> None:
        restored = False
        ends = {self._stop: "the service ends"}
        if pidfd >= 0:
            ends[pidfd] = "the client's process ended"
        try:
            restored = serve(connection, ends)
        finally:
            if pidfd >= 0:
                os.close(pidfd)
            self._restored.append(restored)


def policy_of(rules: Path) -> Policy:
    """Read the file of rules, and log which of them cannot be kept."""
    policy, skipped = read_rules(rules)
    for line in skipped:
        log_event("rule_skipped", f"{rules}: {line}", logging.WARNING, file=str(rules))
    return policy


@contextlib.contextmanager
def listen(path: Path, group: str | None) -> Iterator[socket.socket]:
    """Listen on a socket at a path, for the members of a group; nobody else's file is ever removed for it.

    A `DeviceError`: another service listens there, something else lies there, or the socket cannot be made. A
    `ConfigError`: no such group.
    """
    try:  # a group by name or number: in a container it may have no name
        gid = -1 if group is None else int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"no group {group!r} on this node") from None
    with socket.socket(socket.AF_UNIX, KIND) as listener:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _clear(path)
            before = os.umask(0o777 & ~_SOCKET_MODE)
            try:
                listener.bind(str(path))
            finally:
                os.umask(before)
            if path.lstat().st_gid != gid != -1:
                os.chown(path, -1, gid)
            path.chmod(_SOCKET_MODE)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            inode = path.lstat().st_ino
        except OSError as error:
            raise DevicePermissionError(f"cannot listen on {path}: {error}") from error
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == inode:  # still ours
                    path.unlink()


def _clear(path: Path) -> None:
    """Remove the socket of a service that is gone, and nothing else."""
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


def notify(state: str) -> None:
    """Inform the service manager, if there is one; source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.send(state.encode())


def watchdog_period_s() -> float | None:
    """Return how often the service manager wants a sign of life; source: sd_watchdog_enabled(3)."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 2e6 or None


class ServiceLog(logging.Handler):
    """Lines on standard error, whole and in order: words, or a JSON object each for systemd's journal.

    A thread of its own writes, so that a log that is full or stopped delays no clock. Lines that do not fit
    are counted, and the next line states their number. It takes every event from here on, until `close`.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_LINES_WAITING)
        self._alike: Counter[tuple[str, Value]] = Counter()
        self._until_s = 0.0
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="perseus-guardd-log", daemon=True)
        LOGGER.removeHandler(ERRORS)
        LOGGER.addHandler(self)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._alike.clear()
            self._until_s = now_s + _PERIOD_S
        kind = record.__dict__["event"], record.__dict__["fields"].get("uid")
        self._alike[kind] += 1
        if self._alike[kind] > _MAX_ALIKE or self._lines.full():
            self._left_out += 1
            return
        self._lines.put_nowait(self.format(record))
        self._left_out = 0

    def format(self, record: logging.LogRecord) -> str:
        left_out, message = self._left_out or None, record.getMessage()
        if not self._as_json:
            return f"perseus_ds guard: {message}{f' ({left_out} lines left out)' if left_out else ''}"
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.__dict__["event"],
            "message": message,
            **record.__dict__["fields"],
            "left_out": left_out,
        }
        line = json.dumps({key: value for key, value in entry.items() if value is not None})
        return f"{f'<{_PRIORITIES[record.levelno]}>' if is_journal() else ''}{line}"

    def close(self) -> None:
        """Write what waits, and end; a log that does not take it is not waited for."""
        LOGGER.removeHandler(self)
        LOGGER.addHandler(ERRORS)
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=_FAREWELL_S)
        self._thread.join(_FAREWELL_S)
        super().close()

    def _write(self) -> None:
        for line in iter(self._lines.get, None):
            print_line(line)


def is_journal() -> bool:
    """Return whether standard error leads into systemd's journal; source: systemd.exec(5), JOURNAL_STREAM."""
    with contextlib.suppress(OSError):
        here = os.fstat(2)
        return os.environ.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"
    return False
